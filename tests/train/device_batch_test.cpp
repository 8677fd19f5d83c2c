#include "train/device_batch.h"

#include <gtest/gtest.h>

#include <set>

namespace qtrain {
namespace {

TEST(SizeClass, HoldsTheSizeAndNeverMoreThanThereIs) {
  for (const std::int64_t most : {1, 7, 8, 100, 4096, 16384}) {
    std::set<std::int64_t> classes;
    for (std::int64_t n = 1; n <= most; ++n) {
      const std::int64_t size = size_class(n, most);
      EXPECT_GE(size, n);
      EXPECT_LE(size, most);
      EXPECT_EQ(size_class(size, most), size);
      classes.insert(size);
    }
    EXPECT_LE(classes.size(), 16u) << most;
  }
  EXPECT_EQ(size_class(1, 16384), 1024);
  EXPECT_EQ(size_class(1025, 16384), 2048);
}

std::vector<std::int32_t> integers(ConstTensor t) {
  const auto values = t.span<std::int32_t>();
  return {values.begin(), values.end()};
}

const Batch kBatch{.tokens = {5, 6, 7, 8, 9},
                   .targets = {6, kNoTarget, 8, 9, kNoTarget},
                   .positions = {0, 1, 0, 1, 2},
                   .cu_seqlens = {0, 2, 2, 5},
                   .target_count = 3,
                   .rows = 3};

TEST(BatchFeed, SendsABatchAsItIs) {
  Ctx ctx;
  BatchFeed feed({}, 40);
  const DeviceBatch sent = feed.send(ctx, kBatch, {.scale = 0.5, .dropout_seed = 3});
  EXPECT_EQ(integers(sent.tokens.tokens), kBatch.tokens);
  EXPECT_EQ(integers(sent.tokens.positions), kBatch.positions);
  EXPECT_EQ(integers(sent.tokens.cu_seqlens), (std::vector<std::int32_t>{0, 2, 5}));
  EXPECT_EQ(integers(sent.tokens.target_rows), (std::vector<std::int32_t>{0, 2, 3}));
  EXPECT_EQ(integers(sent.tokens.target_ids), (std::vector<std::int32_t>{6, 8, 9}));
  EXPECT_EQ(sent.tokens.longest, 3);
  EXPECT_EQ(*sent.scale.as<double>(), 0.5);
  EXPECT_EQ(*sent.dropout_seed.as<std::int64_t>(), 3);
}

TEST(BatchFeed, FillsABatchUpWithNothing) {
  Ctx ctx;
  BatchFeed feed({}, 40, Sizes::classes);
  const DeviceBatch sent = feed.send(ctx, kBatch, {});
  EXPECT_EQ(integers(sent.tokens.tokens), (std::vector<std::int32_t>{5, 6, 7, 8, 9, 0, 0, 0}));
  EXPECT_EQ(integers(sent.tokens.positions), (std::vector<std::int32_t>{0, 1, 0, 1, 2, 0, 0, 0}));
  EXPECT_EQ(integers(sent.tokens.cu_seqlens), (std::vector<std::int32_t>{0, 2, 5}));
  EXPECT_EQ(integers(sent.tokens.target_rows), (std::vector<std::int32_t>{0, 2, 3, -1, -1, -1, -1, -1}));
  EXPECT_EQ(integers(sent.tokens.target_ids), (std::vector<std::int32_t>{6, 8, 9, -1, -1, -1, -1, -1}));
  EXPECT_EQ(sent.sizes(), (std::vector<std::int64_t>{8, 3, 8}));
}

TEST(BatchFeed, FillsDocumentsUpToAPowerOfTwo) {
  Ctx ctx;
  BatchFeed feed({}, 40, Sizes::classes);
  Batch batch = kBatch;
  batch.cu_seqlens = {0, 2, 4, 5};
  const DeviceBatch sent = feed.send(ctx, batch, {});
  EXPECT_EQ(integers(sent.tokens.cu_seqlens), (std::vector<std::int32_t>{0, 2, 4, 5, 5}));
}

}  // namespace
}  // namespace qtrain
