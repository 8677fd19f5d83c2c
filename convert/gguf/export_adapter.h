#pragma once
#include "convert/gguf/export.h"

namespace qtrain {

struct GgufAdapterOptions {
  std::filesystem::path model, adapter, output;  ///< of `model`, only config.json is read
  GgufType type = GgufType::f32;                 ///< f32, f16 or bf16
  Log* log = nullptr;                            ///< shows the progress, may be null
  /// The name that the finished file gets (SlowResult). By default that of `output`.
  std::function<std::filesystem::path(const std::filesystem::path& file)> name_now = {};
};

/// Writes a LoRA adapter as a GGUF file for llama.cpp's --lora: A and B of every weight under its GGUF name, with the
/// rows in GGUF's order. The format has one alpha, which is divided by each rank, so the scales of rsLoRA and patterns
/// are folded into B. Throws ErrorKind::input for what the format cannot express: DoRA, whole modules, and factors of
/// an embedding that is also the head.
GgufExportReport export_gguf_adapter(const GgufAdapterOptions& options);

}  // namespace qtrain
