#include "kernels/recent.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>

namespace qtrain::testing {
namespace {

using ::testing::IsNull;
using ::testing::Pointee;

TEST(Recent, KeepsTheValuesThatWereUsedLast) {
  Recent<std::string, std::unique_ptr<int>> recent(3);
  const auto add = [&](const char* key, int value) { return *recent.add(key, std::make_unique<int>(value)); };
  EXPECT_EQ(add("a", 1), 1);
  EXPECT_EQ(add("b", 2), 2);
  EXPECT_EQ(add("c", 3), 3);
  EXPECT_THAT(recent.find("a"), Pointee(Pointee(1)));
  add("d", 4);
  EXPECT_THAT(recent.find("b"), IsNull());
  add("e", 5);
  EXPECT_THAT(recent.find("c"), IsNull());
  EXPECT_THAT(recent.find("a"), Pointee(Pointee(1)));
  EXPECT_THAT(recent.find("d"), Pointee(Pointee(4)));
  EXPECT_THAT(recent.find("e"), Pointee(Pointee(5)));
  add("b", 6);
  EXPECT_THAT(recent.find("a"), IsNull());
  EXPECT_THAT(recent.find("b"), Pointee(Pointee(6)));
}

TEST(Recent, DoesNotGrow) {
  Recent<int, int> recent(10);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_THAT(recent.find(i), IsNull());
    recent.add(i, i);
  }
  EXPECT_EQ(recent.size(), 10u);
  for (int i = 990; i < 1000; ++i) EXPECT_THAT(recent.find(i), Pointee(i));
}

}  // namespace
}  // namespace qtrain::testing
