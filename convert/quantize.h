#pragma once
#include <cstdint>
#include <filesystem>

#include "core/context.h"
#include "core/log.h"
#include "quant/bnb.h"

namespace qtrain {

struct QuantizeOptions {
  std::filesystem::path model, output;
  Quantize4Options matrices;
  std::optional<DType> compute_dtype = {};     ///< in the config that is written; default: the folder's
  std::vector<std::string> skip_modules = {};  ///< linear layers that stay as they are, as llm_int8_skip_modules
  Log* log = nullptr;                          ///< where to show how far it is
};

struct QuantizeReport {
  std::int64_t matrices = 0, parameters = 0;        ///< that were quantized
  std::uint64_t bytes_before = 0, bytes_after = 0;  ///< of all tensors
};

/// Writes the folder that transformers with bitsandbytes saves of the model in 4 bits: the matrices of the decoder's
/// linear layers quantized from the dtype that they have in the folder, everything else as it is, config.json with
/// quantization_config, tokenizer files. Holds one matrix at a time, and the scales of those before it.
/// Errors (ErrorKind::input): a model that is quantized, NaN or infinity in a matrix; ErrorKind::usage: the output is
/// the model's folder, or nothing is left to quantize.
QuantizeReport quantize_folder(Ctx& ctx, const QuantizeOptions& options);

}  // namespace qtrain
