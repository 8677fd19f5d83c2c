#pragma once
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "core/os/file.h"
#include "hub/fetch.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"
#include "tests/hub/hub_server.h"
#include "tests/hub/variables.h"

namespace qtrain::test {

namespace fs = std::filesystem;

inline std::string some_bytes(std::size_t size) {
  std::string text(size, '\0');
  std::mt19937 random(7);
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

/// A hub with the model o/m, and an empty cache.
class Fetching : public ::testing::Test {
 protected:
  void SetUp() override {
    files_ = {{"config.json", {.contents = "{\"model_type\": \"llama\"}"}},
              {"tokenizer.json", {.contents = "{}"}},
              {"model.safetensors", {.contents = some_bytes(200'000), .large = true}},
              {"pytorch_model.bin", {.contents = "pickle", .large = true}},
              {"README.md", {.contents = "# m"}}};
    commit_ = server_.add("models/o/m", files_);
    options_.hub.endpoint = server_.url();
    options_.rules = {
        .attempts = 3, .pause = std::chrono::milliseconds(1), .longest_pause = std::chrono::milliseconds(5)};
  }
  HubPlace fetch(const HubName& name, ModelFiles files = ModelFiles::all) {
    Log log(LogLevel::silent);
    HubFetcher fetcher(options_, log);
    return fetch_model(fetcher, name, files);
  }
  std::string complaint(const HubName& name) {
    return error_of(ErrorKind::input, [&] { fetch(name); });
  }
  std::string text(const std::string& file) {
    return read_text(cache_.path() / "models--o--m/snapshots" / commit_ / file);
  }
  bool has(const std::string& file) { return fs::exists(cache_.path() / "models--o--m" / file); }
  /// A fault of the files of the repository only.
  void fail_files(const HubFault& fault) {
    server_.fail_with([fault](const ServedRequest& r) {
      return r.path.find("/resolve/") != r.path.npos ? std::optional(fault) : std::nullopt;
    });
  }

  testing::TempFolder cache_;
  HubVariables variables_{{{"HF_HUB_CACHE", cache_.path().string()}, {"HOME", cache_.path().string()}}};
  HubServer server_;
  HubServer::Files files_;
  std::string commit_;
  FetchOptions options_;
};

}  // namespace qtrain::test
