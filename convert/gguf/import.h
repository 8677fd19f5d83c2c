#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/log.h"
#include "core/tensor.h"

namespace qtrain {

struct ImportOptions {
  std::filesystem::path gguf, output;
  /// float32, float16 or bfloat16. By default the narrowest that holds every value exactly; quantized weights become
  /// float32.
  std::optional<DType> dtype = {};
  Log* log = nullptr;  ///< where to show how far it is
};

enum class ImportedParts : std::uint8_t {
  model,      ///< weights, configuration, tokenizer and chat template
  tokenizer,  ///< tokenizer and chat template of a file without tensors
};

/// Turns a GGUF file of an architecture that a family has into a Hugging Face folder; one
/// without tensors (a vocabulary, of any architecture) into the files of its tokenizer. Model, tokenizer or tensor
/// types that cannot be carried over exactly are refused with the reason (ErrorKind::input).
ImportedParts import_gguf(const ImportOptions& options);

}  // namespace qtrain
