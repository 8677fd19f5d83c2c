#pragma once
#include <filesystem>
#include <optional>

#include "core/tensor.h"

namespace qtrain {

struct ImportOptions {
  std::filesystem::path gguf, output;
  /// float32, float16 or bfloat16. By default the narrowest that holds every value exactly; quantised weights become
  /// float32.
  std::optional<DType> dtype = {};
};

/// Turns a GGUF file of the architectures llama (Llama, Mistral), qwen2 and qwen3 into a Hugging Face folder: weights,
/// configuration, tokenizer and chat template. Model, tokenizer or tensor types that cannot be carried over exactly
/// are refused with the reason (ErrorKind::input).
void import_gguf(const ImportOptions& options);

}  // namespace qtrain
