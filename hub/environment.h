#pragma once
#include <filesystem>
#include <string>

namespace qtrain {

/// What the environment says about the hub, by the variables of huggingface_hub and with its defaults.
struct HubEnvironment {
  std::filesystem::path cache;       ///< HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, else hub/ in HF_HOME
  std::filesystem::path token_file;  ///< HF_TOKEN_PATH, else token in HF_HOME
  std::string endpoint;              ///< HF_ENDPOINT, without a slash at its end
  std::string token = {};            ///< HF_TOKEN, HUGGING_FACE_HUB_TOKEN; not that of the file
  bool offline = false;              ///< HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE
  bool implicit_token = true;        ///< false: HF_HUB_DISABLE_IMPLICIT_TOKEN
};

/// HF_HOME defaults to huggingface/ in XDG_CACHE_HOME, else to ~/.cache/huggingface.
HubEnvironment hub_environment();

/// A token without the spaces and line ends around it. Throws ErrorKind::usage, naming `place`, for characters that
/// could forge lines of a request.
std::string checked_token(const std::string& text, const std::string& place);

/// The token to send: HF_TOKEN, else the one that `hf auth login` has stored; empty if there is none.
std::string hub_token(const HubEnvironment& environment);

}  // namespace qtrain
