#pragma once
#include <filesystem>
#include <string>

namespace qtrain {

/// The model folder (or config.json) that a run names. Errors (ErrorKind::input): it is not there, or it is something
/// else: a GGUF file, an adapter, weights in a form that is not read. They say what, and the command for it.
std::filesystem::path model_path(const std::string& name);

/// The same for commands that read the folder's weights: the folder, also where its config.json was named.
std::filesystem::path model_folder(const std::string& name);

/// The same for commands that read tokenizer and chat template alone: an adapter or a folder without config.json will
/// do.
std::filesystem::path text_folder(const std::string& name);

/// An input error where this is a file of weights that no command of its kind reads, or a folder of such: it says what
/// it is, and the command for it.
void refuse_weights(const std::filesystem::path& path);

}  // namespace qtrain
