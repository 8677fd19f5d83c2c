#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/log.h"
#include "core/tensor.h"

namespace qtrain {

struct ImportOptions {
  std::filesystem::path gguf, output;
  /// float32, float16 or bfloat16. Default: the narrowest type that holds every value exactly; float32 for quantized
  /// weights.
  std::optional<DType> dtype = {};
  Log* log = nullptr;  ///< shows the progress, may be null
};

enum class ImportedParts : std::uint8_t {
  model,      ///< weights, configuration, tokenizer and chat template
  tokenizer,  ///< tokenizer and chat template of a file without tensors
};

/// Converts a GGUF file of a supported architecture to a Hugging Face folder, and a file without tensors (a vocabulary
/// of any architecture) to tokenizer files. Throws ErrorKind::input with the reason if the model, the tokenizer or a
/// tensor type cannot be converted exactly.
ImportedParts import_gguf(const ImportOptions& options);

}  // namespace qtrain
