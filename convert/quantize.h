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
  std::optional<DType> compute_dtype = {};     ///< for the written config; default: the folder's
  std::vector<std::string> skip_modules = {};  ///< linear layers to leave unquantized, as in llm_int8_skip_modules
  Log* log = nullptr;                          ///< shows the progress, may be null
};

struct QuantizeReport {
  std::int64_t matrices = 0, parameters = 0;        ///< quantized matrices and their parameters
  std::uint64_t bytes_before = 0, bytes_after = 0;  ///< of all tensors
};

/// Writes the folder that transformers with bitsandbytes would save for the model in 4 bits: the matrices of the
/// decoder's linear layers quantized from their dtype in the folder, everything else unchanged, config.json with
/// quantization_config, and tokenizer files. Holds one matrix and all scales in memory. Throws ErrorKind::input for a
/// quantized model and for NaN or infinity in a matrix, ErrorKind::usage if the output is the model's folder or nothing
/// is left to quantize.
QuantizeReport quantize_folder(Ctx& ctx, const QuantizeOptions& options);

}  // namespace qtrain
