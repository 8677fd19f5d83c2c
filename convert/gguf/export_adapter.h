#pragma once
#include "convert/gguf/export.h"

namespace qtrain {

struct GgufAdapterOptions {
  std::filesystem::path model, adapter, output;  ///< of the model config.json alone is read
  GgufType type = GgufType::f32;                 ///< f32, f16 or bf16
  Log* log = nullptr;                            ///< where to show how far it is
};

/// Writes a LoRA adapter as the GGUF file that llama.cpp adds to a base model (--lora): A and B of every weight under
/// its GGUF name, in the order of rows that the base has there. The format has one alpha and divides it by each rank,
/// so what rsLoRA and patterns make of it goes into B. ErrorKind::input for what the format cannot say: DoRA, whole
/// modules, factors of an embedding that is also the head.
GgufExportReport export_gguf_adapter(const GgufAdapterOptions& options);

}  // namespace qtrain
