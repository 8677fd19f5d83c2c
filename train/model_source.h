#pragma once
#include <filesystem>
#include <string>

namespace qtrain {

/// The model folder (or config.json) that a run names. Errors (ErrorKind::input): it is not there, or it is something
/// else: a GGUF file, an adapter, weights in a form that is not read. They say what, and the command for it.
std::filesystem::path model_path(const std::string& name);

}  // namespace qtrain
