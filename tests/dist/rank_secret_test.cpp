#include "dist/rank_secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <vector>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// The secrets of a user whose cache folder is a temporary folder.
class RankSecrets : public ::testing::Test {
 protected:
  RankSecrets() {
    ::unsetenv(kSecretVariable);
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  ~RankSecrets() override {
    ::unsetenv(kSecretVariable);
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  }
  fs::path file() const { return folder_ / "qtrain/rank-secret"; }
  qtrain::testing::TempFolder folder_;
  std::optional<std::string> before_;
};

TEST_F(RankSecrets, OfTheEnvironmentComeFirst) {
  EXPECT_FALSE(secret_of_environment());
  ::setenv(kSecretVariable, "", 1);
  EXPECT_FALSE(secret_of_environment());
  ::setenv(kSecretVariable, "sixteen letters!", 1);
  EXPECT_EQ(shared_secret().text(), "sixteen letters!");
  EXPECT_FALSE(fs::exists(file()));
  for (const std::string& text : {std::string("fifteen letters"), std::string(1025, 'x')}) {
    ::setenv(kSecretVariable, text.c_str(), 1);
    const std::string refused = test::error_if_any(ErrorKind::usage, [] { shared_secret(); });
    EXPECT_THAT(refused, HasSubstr(kSecretVariable));
    EXPECT_THAT(refused, HasSubstr("16 to 1024"));
    EXPECT_EQ(refused.find(text), std::string::npos);
  }
}

TEST_F(RankSecrets, OfAUserAreTheSameForAllProcesses) {
  std::vector<std::future<std::string>> asked;
  for (int i = 0; i < 16; ++i) asked.push_back(std::async(std::launch::async, [] { return shared_secret().text(); }));
  const std::string first = asked[0].get();
  EXPECT_EQ(first.size(), 64u);
  for (std::size_t i = 1; i < asked.size(); ++i) EXPECT_EQ(asked[i].get(), first);
  struct stat about {};
  ASSERT_EQ(::stat(file().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(file().parent_path()), {}), 1);  // no draft remains
}

// One rank looks for the file just before another one creates it.
TEST_F(RankSecrets, AreTheSameWhereverTheyAreLookedForFirst) {
  constexpr int kRounds = 3000;
  std::barrier meet(2, [this]() noexcept { fs::remove(file()); });
  const auto look = [&meet] {
    std::vector<std::string> found;
    for (int round = 0; round < kRounds; ++round) {
      meet.arrive_and_wait();
      found.push_back(secret_of_user().text());
    }
    return found;
  };
  auto other = std::async(std::launch::async, look);
  const std::vector<std::string> mine = look();
  EXPECT_TRUE(mine == other.get());
}

// A secret that others may read, or may have written, is not used; another place is used instead.
TEST_F(RankSecrets, OfAUserAreNotTakenFromOthers) {
  const std::string text(64, 'a');
  fs::create_directories(file().parent_path());
  const auto expect_refused = [&](const char* what) { EXPECT_NE(secret_of_user().text(), text) << what; };
  write_file(file(), text);
  ::chmod(file().c_str(), 0640);
  expect_refused("readable for the group");
  fs::remove(file());
  write_file(folder_ / "elsewhere", text);
  ::chmod((folder_ / "elsewhere").c_str(), 0600);
  fs::create_symlink(folder_ / "elsewhere", file());
  expect_refused("a link");
  fs::remove(file());
  ::mkfifo(file().c_str(), 0600);
  expect_refused("a pipe");
  fs::remove(file());
  write_file(file(), "short");
  ::chmod(file().c_str(), 0600);
  EXPECT_EQ(secret_of_user().text().size(), 64u);
}

TEST_F(RankSecrets, AreNeverTwiceTheSame) {
  EXPECT_NE(RankSecret::random().text(), RankSecret::random().text());
}

}  // namespace
}  // namespace qtrain
