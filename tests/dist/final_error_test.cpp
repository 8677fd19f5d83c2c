#include "dist/final_error.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace qtrain {
namespace {

const Error kError(ErrorKind::disk, {.cause = "cannot be \"written\"\nat all", .place = "a/b", .remedy = "free space"});

class FinalError : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe(ends_.data()), 0);
    const std::string variable = final_error_variable(ends_[1]);
    ::setenv(variable.substr(0, variable.find('=')).c_str(), variable.substr(variable.find('=') + 1).c_str(), 1);
  }
  void TearDown() override {
    const std::string variable = final_error_variable(0);
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

TEST_F(FinalError, ReachesTheLauncherUnchanged) {
  ASSERT_TRUE(send_final_error(kError));
  const auto error = parse_final_error(heard());
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), ErrorKind::disk);
  EXPECT_STREQ(error->what(), kError.what());
}

TEST_F(FinalError, MayFollowTheWordThatARankGoesOnAlone) {
  send_goes_on_alone();
  const std::string all = heard();
  EXPECT_TRUE(goes_on_alone(all));
  EXPECT_FALSE(parse_final_error(all));
  ASSERT_TRUE(send_final_error(kError));
  const std::string error = heard();
  EXPECT_FALSE(goes_on_alone(error));
  EXPECT_STREQ(parse_final_error(all + error)->what(), kError.what());
  send_ends_too();
  const std::string no_longer = heard();
  EXPECT_FALSE(goes_on_alone(all + no_longer));
  EXPECT_FALSE(parse_final_error(all + no_longer));
  EXPECT_STREQ(parse_final_error(all + no_longer + error)->what(), kError.what());
}

TEST_F(FinalError, ThatPointsToAnotherRankIsRecognized) {
  EXPECT_TRUE(is_reported_elsewhere({ErrorKind::peer, {.cause = fmt::format("rank 1 ended{}", kReportedElsewhere)}}));
  EXPECT_FALSE(is_reported_elsewhere(kError));
}

TEST_F(FinalError, ThatWasCutOffIsNone) {
  ASSERT_TRUE(send_final_error(kError));
  const std::string all = heard();
  EXPECT_FALSE(parse_final_error(all.substr(0, all.size() - 1)));
  EXPECT_FALSE(parse_final_error(""));
}

TEST(FinalErrorWithoutLauncher, IsNotSent) {
  EXPECT_FALSE(send_final_error(kError));
}

}  // namespace
}  // namespace qtrain
