#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/formats/json.h"
#include "data/packing.h"
#include "tests/errors.h"

namespace qtrain::test {

/// A separate folder for each test, removed at the end.
class DataFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("qtrain_" + std::string(info->test_suite_name()) + "_" + info->name() + "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Writes a file below the folder and returns its path.
  std::string write(const std::string& name, std::string_view contents) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << contents;
    return path.string();
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

/// The packing strategy with TRL's name in a golden.
inline Packing packing_named(std::string_view name) {
  if (name == "bfd") return Packing::bfd;
  return name == "wrapped" ? Packing::wrapped : Packing::bfd_split;
}

inline std::filesystem::path golden_folder() {
  return std::filesystem::path(QTRAIN_SOURCE_DIR) / "tests/data/golden";
}

}  // namespace qtrain::test
