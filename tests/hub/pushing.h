#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "core/os/file.h"
#include "hub/push.h"
#include "hub/pushed_files.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"
#include "tests/hub/hub_server.h"
#include "tests/hub/variables.h"

namespace qtrain::test {

/// A hub that wants a token, and the folder of a model.
class Pushing : public ::testing::Test {
 protected:
  static constexpr const char* kToken = "hf_good";
  static constexpr const char* kRepo = "models/o/n@main";

  void SetUp() override {
    server_.set_uploads({.token = kToken});
    write("config.json", "{\"model_type\": \"llama\"}");
    write("README.md", "# n\n");
    write("model.safetensors", random_bytes(3500, 1));
    write("metrics.jsonl", "{}\n");
  }
  static std::string random_bytes(std::size_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  }
  void write(const std::string& name, const std::string& contents) const {
    std::filesystem::create_directories((model() / name).parent_path());
    std::ofstream(model() / name, std::ios::binary) << contents;
  }
  std::filesystem::path model() const { return folder_ / "model"; }

  PushJob job() const {
    PushJob job{.hub = hub_environment(), .name = {.repo = "o/n"}, .token = kToken};
    job.hub.endpoint = server_.url();
    job.rules = {.attempts = 3, .pause = std::chrono::milliseconds(1), .longest_pause = std::chrono::milliseconds(5)};
    job.files = files_to_push(model(), WhichFiles::result).files;
    job.records = folder_ / "uploads";
    return job;
  }
  PushResult push_now() { return push_as(job()); }
  PushResult push_as(const PushJob& job) {
    Log log(LogLevel::silent);
    return push(job, log);
  }
  std::string complaint(const PushJob& job, ErrorKind kind = ErrorKind::input) {
    return error_of(kind, [&] { push_as(job); });
  }
  std::string complaint() { return complaint(job()); }
  /// What the hub has of a file.
  std::string remote(const std::string& file) { return server_.files_of(kRepo).at(file).contents; }
  std::vector<std::string> records() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "uploads", none))
      names.push_back(entry.path().string());
    return names;
  }
  /// A fault of requests whose path contains the text, the first `times` ones.
  void fail_requests(const std::string& part, const HubFault& fault, int times = 1 << 20) {
    server_.fail_with([part, fault, times](const ServedRequest& r) mutable -> std::optional<HubFault> {
      if (r.path.find(part) == r.path.npos || times-- <= 0) return {};
      return fault;
    });
  }

  testing::TempFolder folder_;
  HubVariables variables_{{{"HOME", folder_.path().string()}}};
  HubServer server_;
};

}  // namespace qtrain::test
