#pragma once
#include <filesystem>
#include <string>

namespace qtrain {

/// The model folder (or config.json) that a run names. Throws ErrorKind::input if it does not exist or is something
/// else (a GGUF file, an adapter, weights in an unsupported format), saying what it is and which command handles it.
std::filesystem::path model_path(const std::string& name);

/// Likewise for commands that read the folder's weights: returns the folder even if its config.json was named.
std::filesystem::path model_folder(const std::string& name);

/// Likewise for commands that only read the tokenizer and chat template: also accepts an adapter or a folder without
/// config.json.
std::filesystem::path text_folder(const std::string& name);

/// Throws an input error if this is a weight file of a kind that no command of this group reads, or a folder of such
/// files, saying what it is and which command handles it.
void refuse_weights(const std::filesystem::path& path);

}  // namespace qtrain
