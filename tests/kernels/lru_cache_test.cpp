#include "kernels/lru_cache.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>

namespace qtrain::testing {
namespace {

using ::testing::IsNull;
using ::testing::Pointee;

TEST(LruCache, EvictsTheLeastRecentlyUsed) {
  LruCache<std::string, std::unique_ptr<int>> cache(3);
  const auto add = [&](const char* key, int value) { return *cache.add(key, std::make_unique<int>(value)); };
  EXPECT_EQ(add("a", 1), 1);
  EXPECT_EQ(add("b", 2), 2);
  EXPECT_EQ(add("c", 3), 3);
  EXPECT_THAT(cache.find("a"), Pointee(Pointee(1)));
  add("d", 4);
  EXPECT_THAT(cache.find("b"), IsNull());
  add("e", 5);
  EXPECT_THAT(cache.find("c"), IsNull());
  EXPECT_THAT(cache.find("a"), Pointee(Pointee(1)));
  EXPECT_THAT(cache.find("d"), Pointee(Pointee(4)));
  EXPECT_THAT(cache.find("e"), Pointee(Pointee(5)));
  add("b", 6);
  EXPECT_THAT(cache.find("a"), IsNull());
  EXPECT_THAT(cache.find("b"), Pointee(Pointee(6)));
}

TEST(LruCache, DoesNotGrow) {
  LruCache<int, int> cache(10);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_THAT(cache.find(i), IsNull());
    cache.add(i, i);
  }
  for (int i = 0; i < 990; ++i) EXPECT_THAT(cache.find(i), IsNull());
  for (int i = 990; i < 1000; ++i) EXPECT_THAT(cache.find(i), Pointee(i));
}

}  // namespace
}  // namespace qtrain::testing
