#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "hub/push.h"

namespace qtrain {

enum class WhichFiles : std::uint8_t {
  result,  ///< the model or adapter: weights, configs, tokenizer, templates, card and license
  all,     ///< everything in the folder, also records of the run, optimizer states and checkpoints
};

/// What of a folder is pushed.
struct PushSelection {
  std::vector<PushedFile> files;
  std::vector<std::string> left_out = {};  ///< paths in the folder; folders end in /
};

/// The files of a model, adapter or checkpoint, or of a folder with GGUF files. Throws ErrorKind::input for a folder
/// that is none of these, whose weights are incomplete, or for a pointer that git-lfs has left.
PushSelection files_to_push(const std::filesystem::path& folder, WhichFiles which);

/// Throws ErrorKind::usage if a file looks like a secret by its name (.env, id_rsa, *.pem), or if a text among the
/// files contains a key or token, such as one of `tokens`.
void require_no_secrets(const std::vector<PushedFile>& files, const std::vector<std::string>& tokens);

}  // namespace qtrain
