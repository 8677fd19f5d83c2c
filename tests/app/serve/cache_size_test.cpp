#include "app/serve/cache_size.h"

#include <gmock/gmock.h>

#include "tests/errors.h"

namespace qtrain::serve {
namespace {

using qtrain::test::error_of;
using ::testing::HasSubstr;

constexpr CacheMemory kMemory{.left = 90'000, .share = 25'000, .per_token = 10};

TEST(CacheSize, HoldsAllAnswersWhereThereIsRoom) {
  const CacheSize size = cache_size({.usual = 100, .sequences = 4}, kMemory);
  EXPECT_EQ(size.context, 100);
  EXPECT_EQ(size.tokens, 400);
  EXPECT_EQ(cache_size({.usual = 1000, .sequences = 4}, kMemory).tokens, 2496)
      << "the share of memory, in whole blocks";
}

TEST(CacheSize, TheContextIsLoweredToWhatFits) {
  const CacheSize size = cache_size({.usual = 4096}, kMemory);
  EXPECT_EQ(size.context, 2496);
  EXPECT_EQ(size.tokens, 2496);
  EXPECT_EQ(cache_size({.tokens = 512, .usual = 4096}, kMemory).context, 512);
}

TEST(CacheSize, AContextThatIsAskedForMayTakeAllMemory) {
  const CacheSize size = cache_size({.context = 8000}, kMemory);
  EXPECT_EQ(size.context, 8000);
  EXPECT_EQ(size.tokens, 8000);
  const Error large = error_of([] { cache_size({.context = 9001}, kMemory); });
  EXPECT_EQ(large.kind(), ErrorKind::memory);
  EXPECT_THAT(large.what(), HasSubstr("--max_context 8992 fits"));
}

TEST(CacheSize, WhatDoesNotFitIsSaid) {
  EXPECT_EQ(error_of([] { cache_size({.tokens = 10'000}, kMemory); }).kind(), ErrorKind::memory);
  EXPECT_EQ(error_of([] { cache_size({}, {.left = -5, .share = -2, .per_token = 10}); }).kind(), ErrorKind::memory);
  EXPECT_EQ(error_of([] { cache_size({.context = 600, .tokens = 500}, kMemory); }).kind(), ErrorKind::usage);
}

}  // namespace
}  // namespace qtrain::serve
