#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/formats/json.h"

namespace qtrain {

enum class TensorList : std::uint8_t { leave_out, include };

/// Describes a model folder, adapter, checkpoint, run folder, safetensors or GGUF file, reading only headers and
/// configs: "kind" and, as applicable, "model", "weights" (parameters, bytes, dtypes), "adapter", "tokenizer",
/// "checkpoint", "checkpoints", "metadata", and with TensorList::include "tensors". Throws ErrorKind::input if the path
/// does not exist, a file is damaged, or nothing in it is known.
Json inspect_path(const std::filesystem::path& path, TensorList list = TensorList::leave_out);

/// The report as aligned lines of text, one fact per line, with a newline at the end.
std::string inspect_text(const Json& report);

}  // namespace qtrain
