#include "core/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qtrain {
namespace {

using ::testing::HasSubstr;

TEST(ThreadError, IsNotABugOfTheProgram) {
  const Error limit = thread_error(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(limit.kind(), ErrorKind::memory);
  EXPECT_THAT(limit.what(), HasSubstr("ulimit -v, -u"));
  const Error other = thread_error(std::system_error(std::make_error_code(std::errc::invalid_argument)));
  EXPECT_EQ(other.kind(), ErrorKind::internal);
  EXPECT_THAT(other.what(), HasSubstr("internal error: "));
}

}  // namespace
}  // namespace qtrain
