#include "core/os/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

class Paths : public ::testing::Test {
 protected:
  Paths() {
    std::ofstream(folder_ / "file") << "x";
    fs::create_symlink("loop", folder_ / "loop");
    fs::create_symlink("file", folder_ / "link");
    fs::create_symlink("nothing", folder_ / "dangling");
  }
  const testing::TempFolder folder_;
};

TEST_F(Paths, AreFollowedToWhatTheyLeadTo) {
  EXPECT_TRUE(path_exists(folder_ / "link"));
  EXPECT_TRUE(is_plain_file(folder_ / "link"));
  EXPECT_FALSE(is_folder(folder_ / "link"));
  EXPECT_TRUE(is_folder(folder_.path()));
  EXPECT_FALSE(is_plain_file("/dev/null"));
}

TEST_F(Paths, ThatLeadNowhereAreNotThere) {
  for (const char* name : {"none", "none/x", "file/x", "dangling"}) EXPECT_FALSE(path_exists(folder_ / name)) << name;
  EXPECT_FALSE(path_exists(""));
}

TEST_F(Paths, ThatCannotBeLookedAtAreInputErrorsThatSayWhy) {
  for (const auto& [name, why] : {std::pair<std::string, const char*>{"loop", "symbolic links"},
                                  {"loop/x", "symbolic links"},
                                  {std::string(300, 'n'), "too long"}})
    for (bool (*question)(const fs::path&) : {path_exists, is_folder, is_plain_file}) {
      const Error error = testing::error_of([&] { question(folder_ / name); });
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_THAT(error.what(), HasSubstr(why));
      EXPECT_EQ(error.text().place, (folder_ / name).string());
    }
}

TEST_F(Paths, BecomeAbsolute) {
  EXPECT_EQ(absolute_path("/a/./b/../c"), "/a/c");
  EXPECT_EQ(absolute_path("x"), fs::current_path() / "x");
  EXPECT_EQ(absolute_path("").lexically_relative(fs::current_path()), ".");
}

TEST_F(Paths, OfFoldersThatCannotBeMadeAreDiskErrors) {
  create_folders(folder_ / "a/b");
  EXPECT_TRUE(is_folder(folder_ / "a/b"));
  for (const char* name : {"file/x", "loop/x"}) {
    const Error error = testing::error_of([&] { create_folders(folder_ / name); });
    EXPECT_EQ(error.kind(), ErrorKind::disk);
  }
}

TEST_F(Paths, ThatTheStandardLibraryThrowsAboutAreNamed) {
  const auto thrown = [](std::errc code) { return path_error({"status", "place", std::make_error_code(code)}); };
  const Error error = thrown(std::errc::permission_denied);
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_THAT(error.what(), HasSubstr("place: cannot be accessed: Permission denied"));
  EXPECT_EQ(thrown(std::errc::no_space_on_device).kind(), ErrorKind::disk);
}

}  // namespace
}  // namespace qtrain
