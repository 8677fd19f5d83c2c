#include "train/step/row_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "train/step/device_batch.h"

namespace qtrain {
namespace {

Batch batch_of(const std::vector<std::int64_t>& row_sizes) {
  Batch batch{.cu_seqlens = {0}, .row_sizes = row_sizes};
  for (const std::int64_t size : row_sizes) {
    for (std::int64_t t = 0; t < size; ++t) {
      batch.tokens.push_back(static_cast<std::int32_t>(7 + t));
      batch.targets.push_back(1);
      batch.positions.push_back(static_cast<std::int32_t>(t));
    }
    batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  }
  return batch;
}

constexpr RowNoise kNoise{.alpha = 5, .width = 16, .seed = 42, .epoch = 2, .first_row = 10};

TEST(RowNoise, HasTheMagnitudeOfARowOfItsLength) {
  const TokenNoise noise = noise_of(batch_of({3, 1, 0, 4}), kNoise);
  ASSERT_EQ(noise.magnitudes.size(), 8u);
  for (std::size_t t = 0; t < 8; ++t) {
    const double tokens = t < 3 ? 3 : t < 4 ? 1 : 4;
    EXPECT_FLOAT_EQ(noise.magnitudes[t], static_cast<float>(5 / std::sqrt(tokens * 16))) << t;
  }
}

// The division into batches changes nothing: rows 10 to 12 at once, or 10 and 11 before 12.
TEST(RowNoise, FollowsTheRowsPlaceInItsEpoch) {
  const TokenNoise whole = noise_of(batch_of({3, 2, 4}), kNoise), first = noise_of(batch_of({3, 2}), kNoise);
  RowNoise later = kNoise;
  later.first_row = 12;
  const TokenNoise second = noise_of(batch_of({4}), later);
  std::vector<std::int64_t> joined = first.keys;
  joined.insert(joined.end(), second.keys.begin(), second.keys.end());
  EXPECT_EQ(joined, whole.keys);
}

TEST(RowNoise, IsAnotherForEachTokenRowEpochAndSeed) {
  std::set<std::int64_t> keys;
  for (const std::int64_t seed : {42, 43})
    for (const std::int64_t epoch : {0, 1})
      for (const std::int64_t row : {0, 3}) {
        const RowNoise noise{.alpha = 1, .seed = seed, .epoch = epoch, .first_row = row};
        for (const std::int64_t key : noise_of(batch_of({5, 5, 5}), noise).keys) keys.insert(key);
      }
  EXPECT_EQ(keys.size(), 2u * 2 * 2 * 15);
}

// Padding has no noise, and ranks that share tokens have the noise of their own.
TEST(RowNoise, GoesWithItsTokens) {
  Ctx ctx;
  const Batch batch = batch_of({3, 2});
  const TokenNoise all = noise_of(batch, kNoise);
  for (const Sizes sizes : {Sizes::exact, Sizes::classes})
    for (int rank = 0; rank < 2; ++rank) {
      BatchFeed feed({},
                     {.max_tokens = 5, .sizes = sizes, .share = {.ranks = 2, .rank = rank}, .noise = Noise::on_rows});
      const DeviceBatch sent = feed.send(ctx, batch, {.noise = kNoise});
      const std::int64_t tokens = sent.tokens.tokens.numel();
      ASSERT_EQ(sent.noise.keys.numel(), tokens);
      ASSERT_EQ(sent.noise.magnitudes.numel(), tokens);
      std::size_t with_noise = 0;
      for (std::int64_t i = 0; i < tokens; ++i) {
        const float magnitude = sent.noise.magnitudes.as<float>()[i];
        if (magnitude == 0) continue;
        ++with_noise;
        const auto at = std::ranges::find(all.keys, sent.noise.keys.as<std::int64_t>()[i]) - all.keys.begin();
        ASSERT_LT(at, 5);
        EXPECT_EQ(sent.tokens.tokens.as<std::int32_t>()[i], batch.tokens[static_cast<std::size_t>(at)]);
        EXPECT_EQ(magnitude, all.magnitudes[static_cast<std::size_t>(at)]);
      }
      EXPECT_EQ(with_noise, rank == 0 ? 2u : 3u);
    }
}

TEST(RowNoise, IsNotSentWithoutARequest) {
  Ctx ctx;
  EXPECT_FALSE(BatchFeed({}, {.max_tokens = 5}).send(ctx, batch_of({3, 2})).noise.wanted());
}

}  // namespace
}  // namespace qtrain
