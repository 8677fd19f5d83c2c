#include "dist/last_words.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace qtrain {
namespace {

const Error kError(ErrorKind::disk, {.cause = "cannot be \"written\"\nat all", .place = "a/b", .remedy = "free space"});

class LastWords : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe(ends_.data()), 0);
    const std::string variable = last_words_variable(ends_[1]);
    ::setenv(variable.substr(0, variable.find('=')).c_str(), variable.substr(variable.find('=') + 1).c_str(), 1);
  }
  void TearDown() override {
    const std::string variable = last_words_variable(0);
    ::unsetenv(variable.substr(0, variable.find('=')).c_str());
    for (const int end : ends_) ::close(end);
  }
  std::string heard() const {
    std::array<char, 4096> text{};
    const ssize_t n = ::read(ends_[0], text.data(), text.size());
    return {text.data(), static_cast<std::size_t>(n)};
  }
  std::array<int, 2> ends_{};
};

TEST_F(LastWords, ComeToTheLauncherAsTheyAre) {
  ASSERT_TRUE(leave_last_words(kError));
  const auto error = heard_last_words(heard());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::disk);
  EXPECT_STREQ(error->what(), kError.what());
}

TEST_F(LastWords, ThatPointToAnotherRankAreKnown) {
  EXPECT_TRUE(is_told_elsewhere({ErrorKind::peer, {.cause = fmt::format("rank 1 ended{}", kToldElsewhere)}}));
  EXPECT_FALSE(is_told_elsewhere(kError));
}

TEST_F(LastWords, ThatWereCutOffAreNone) {
  ASSERT_TRUE(leave_last_words(kError));
  const std::string all = heard();
  EXPECT_FALSE(heard_last_words(all.substr(0, all.size() - 1)));
  EXPECT_FALSE(heard_last_words(""));
}

TEST(LastWordsOfOthers, AreForPeople) {
  EXPECT_FALSE(leave_last_words(kError));
}

}  // namespace
}  // namespace qtrain
