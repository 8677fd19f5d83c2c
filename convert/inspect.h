#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/formats/json.h"

namespace qtrain {

enum class TensorList : std::uint8_t { leave_out, include };

/// What is in a model folder, adapter, checkpoint, run folder, safetensors or GGUF file, read from headers and
/// configurations only: "kind" and, as far as they apply, "model", "weights" (parameters, bytes, dtypes), "adapter",
/// "tokenizer", "checkpoint", "checkpoints", "metadata", and with TensorList::include "tensors".
/// Errors (ErrorKind::input): no such path, a damaged file, nothing there that this program knows.
Json inspect_path(const std::filesystem::path& path, TensorList list = TensorList::leave_out);

/// The report for people: aligned lines, one fact each, ending with a line end.
std::string inspect_text(const Json& report);

}  // namespace qtrain
