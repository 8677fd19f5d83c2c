#include "core/os/thread_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qtrain {
namespace {

using ::testing::HasSubstr;

TEST(ThreadLimit, IsNotABugOfTheProgram) {
  const Error limit = thread_error(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(limit.kind(), ErrorKind::usage);
  EXPECT_THAT(limit.what(), HasSubstr("ulimit -u"));
  const Error other = thread_error(std::system_error(std::make_error_code(std::errc::invalid_argument)));
  EXPECT_EQ(other.kind(), ErrorKind::internal);
  EXPECT_THAT(other.what(), HasSubstr("internal error: "));
}

}  // namespace
}  // namespace qtrain
