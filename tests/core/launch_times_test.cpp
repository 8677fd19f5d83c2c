#include "core/launch_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tests/errors.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// "name detail x launches" of each row, the longest first.
std::vector<std::string> text_of(const std::vector<LaunchTimes::Row>& rows) {
  std::vector<std::string> lines;
  for (const LaunchTimes::Row& r : rows)
    lines.push_back(r.name + (r.detail.empty() ? "" : " " + r.detail) + " x" + std::to_string(r.launches));
  return lines;
}

void work(Stream& stream, const char* name, std::chrono::milliseconds time) {
  const Stream::Launch launch(stream, name);
  std::this_thread::sleep_for(time);
}

TEST(LaunchTimes, AddUpWhatHasOneNameAndDetail) {
  Stream stream;
  LaunchTimes times(stream);
  for (const char* size : {"8x8", "9x9", "8x8"}) {
    const Stream::Launch launch(stream, "gemm", [&] { return std::string(size); });
    std::this_thread::sleep_for(milliseconds(5));
  }
  work(stream, "norm", milliseconds(40));
  const std::vector<LaunchTimes::Row> rows = times.rows();
  EXPECT_THAT(text_of(rows), ::testing::ElementsAre("norm x1", "gemm 8x8 x2", "gemm 9x9 x1"));
  EXPECT_GE(rows.at(0).seconds, 0.04);
  EXPECT_GE(rows.at(1).seconds, 0.01);
  times.clear();
  EXPECT_THAT(times.rows(), ::testing::IsEmpty());
}

TEST(LaunchTimes, CountTheOuterOneOfNestedLaunches) {
  Stream stream;
  std::array<std::byte, 4> from{}, to{};
  LaunchTimes times(stream);
  {
    const Stream::Launch outer(stream, "outer");
    stream.copy(to.data(), from.data(), to.size());
    work(stream, "inner", milliseconds(0));
  }
  stream.fill(to.data(), 1, to.size());
  stream.copy(to.data(), from.data(), to.size());
  EXPECT_THAT(text_of(times.rows()), ::testing::UnorderedElementsAre("outer x1", "fill x1", "copy x1"));
}

TEST(LaunchTimes, EndWithThem) {
  Stream stream;
  bool asked = false;
  const auto detail = [&] {
    asked = true;
    return std::string("detail");
  };
  {
    LaunchTimes times(stream);
    EXPECT_TRUE(stream.is_observed());
    EXPECT_THAT(test::error_of([&] { LaunchTimes again(stream); }).what(), HasSubstr("already has an observer"));
  }
  EXPECT_FALSE(stream.is_observed());
  const Stream::Launch launch(stream, "gemm", detail);
  EXPECT_FALSE(asked) << "nobody observes the stream, so nobody needs the sizes";
}

}  // namespace
}  // namespace qtrain
