#pragma once
#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace qtrain::test {

/// Sets environment variables, and removes those that concern the hub, during the life of this object.
class HubVariables {
 public:
  explicit HubVariables(const std::map<std::string, std::string>& values) {
    for (const char* name :
         {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
          "HF_TOKEN_PATH", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN"})
      set(name, std::nullopt);
    for (const auto& [name, value] : values) set(name, value);
  }
  ~HubVariables() {
    for (const auto& [name, value] : before_) put(name, value);
  }
  HubVariables(const HubVariables&) = delete;
  HubVariables& operator=(const HubVariables&) = delete;

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      ::setenv(name.c_str(), value->c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::optional<std::string>& value) {
    const char* now = std::getenv(name.c_str());
    before_.emplace(name, now ? std::optional<std::string>(now) : std::nullopt);
    put(name, value);
  }

  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace qtrain::test
