#include "train/step/device_batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <set>

#include "train/step/step.h"

namespace qtrain {
namespace {

TEST(SizeClass, HoldsTheSizeAndNeverMoreThanThereIs) {
  for (const std::int64_t most : {1, 7, 8, 100, 4096, 16384}) {
    std::set<std::int64_t> classes;
    for (std::int64_t n = 1; n <= most; ++n) {
      const std::int64_t size = token_class(n, most);
      EXPECT_GE(size, n);
      EXPECT_LE(size, most);
      EXPECT_EQ(token_class(size, most), size);
      classes.insert(size);
    }
    EXPECT_LE(classes.size(), 16u) << most;
  }
  EXPECT_EQ(token_class(1, 16384), 1024);
  EXPECT_EQ(token_class(1025, 16384), 2048);
}

// Batches of chats: the padded tokens and targets are no more than a fifth above the real ones, and nearly all batches
// find their graph among those that are kept.
TEST(SizeClass, RaggedRowsReplayKeptGraphs) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> question(5, 0.7), answer(5.3, 0.8);
  for (const auto& [rows, longest] : {std::pair(8, 1024), {2, 2048}, {16, 512}}) {
    std::list<std::pair<std::int64_t, std::int64_t>> kept;
    int replays = 0;
    double tokens = 0, targets = 0, padded_tokens = 0, padded_targets = 0;
    constexpr int kBatches = 2000;
    for (int batch = 0; batch < kBatches; ++batch) {
      std::int64_t all = 0, answers = 0;
      for (int row = 0; row < rows; ++row) {
        const auto a = 5 + static_cast<std::int64_t>(answer(random)),
                   q = 5 + static_cast<std::int64_t>(question(random));
        all += std::min<std::int64_t>(a + q, longest);
        answers += std::min<std::int64_t>(a, longest);
      }
      const std::int64_t t = token_class(all, std::int64_t{rows} * longest), g = target_class(answers, t);
      const auto found = std::find(kept.begin(), kept.end(), std::pair(t, g));
      if (found != kept.end()) kept.erase(found), ++replays;
      kept.emplace_front(t, g);
      if (kept.size() > kKeptGraphs) kept.pop_back();
      tokens += static_cast<double>(all), padded_tokens += static_cast<double>(t);
      targets += static_cast<double>(answers), padded_targets += static_cast<double>(g);
    }
    EXPECT_GT(replays, 0.92 * kBatches) << rows;
    EXPECT_LT(padded_tokens, 1.2 * tokens) << rows;
    EXPECT_LT(padded_targets, 1.2 * targets) << rows;
  }
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
  BatchFeed feed({}, {.max_tokens = 40});
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
  BatchFeed feed({}, {.max_tokens = 40, .sizes = Sizes::classes});
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
  BatchFeed feed({}, {.max_tokens = 40, .sizes = Sizes::classes});
  Batch batch = kBatch;
  batch.cu_seqlens = {0, 2, 4, 5};
  const DeviceBatch sent = feed.send(ctx, batch, {});
  EXPECT_EQ(integers(sent.tokens.cu_seqlens), (std::vector<std::int32_t>{0, 2, 4, 5, 5}));
}

// Ranks that share tokens: every token, position and target belongs to one rank, in pieces r and 2 * ranks - 1 - r.
TEST(BatchFeed, CutsABatchIntoThePartsOfItsRanks) {
  Ctx ctx;
  std::vector<std::int32_t> tokens, positions;
  std::map<std::int32_t, std::int32_t> targets;
  for (int rank = 0; rank < 2; ++rank) {
    const ContextShare share{.ranks = 2, .rank = rank};
    BatchFeed feed({}, {.max_tokens = 5, .share = share});
    const DeviceBatch sent = feed.send(ctx, kBatch, {});
    EXPECT_EQ(integers(sent.tokens.cu_seqlens), (std::vector<std::int32_t>{0, 2, 5, 8}));
    EXPECT_EQ(sent.tokens.longest, 3);
    const auto own = integers(sent.tokens.tokens), at = integers(sent.tokens.positions);
    EXPECT_EQ(own, rank == 0 ? (std::vector<std::int32_t>{5, 6, 0, 0}) : (std::vector<std::int32_t>{7, 8, 9, 0}));
    EXPECT_EQ(at, rank == 0 ? (std::vector<std::int32_t>{0, 1, 0, 0}) : (std::vector<std::int32_t>{0, 1, 2, 0}));
    const auto rows = integers(sent.tokens.target_rows), ids = integers(sent.tokens.target_ids);
    for (std::size_t i = 0; i < rows.size(); ++i) targets[own[static_cast<std::size_t>(rows[i])]] = ids[i];
  }
  EXPECT_EQ(targets, (std::map<std::int32_t, std::int32_t>{{5, 6}, {7, 8}, {8, 9}}));
}

// Size classes apply to all tokens before they are cut: padding is in the last piece and outside all documents.
TEST(BatchFeed, CutsAFilledBatch) {
  Ctx ctx;
  for (int rank = 0; rank < 2; ++rank) {
    BatchFeed feed({}, {.max_tokens = 40, .sizes = Sizes::classes, .share = {.ranks = 2, .rank = rank}});
    const DeviceBatch sent = feed.send(ctx, kBatch, {});
    EXPECT_EQ(integers(sent.tokens.cu_seqlens), (std::vector<std::int32_t>{0, 2, 5}));
    const auto own = integers(sent.tokens.tokens), at = integers(sent.tokens.positions);
    EXPECT_EQ(own, rank == 0 ? (std::vector<std::int32_t>{5, 6, 0, 0}) : (std::vector<std::int32_t>{7, 8, 9, 0}));
    EXPECT_EQ(at, rank == 0 ? (std::vector<std::int32_t>{0, 1, 0, 0}) : (std::vector<std::int32_t>{0, 1, 2, 0}));
    EXPECT_EQ(integers(sent.tokens.target_rows),
              rank == 0 ? (std::vector<std::int32_t>{0, -1, -1, -1}) : (std::vector<std::int32_t>{0, 1, -1, -1}));
  }
}

TEST(BatchFeed, HoldsAsManyTokensAsItSays) {
  Ctx ctx;
  for (const int ranks : {1, 2, 3}) {
    const ContextShare share{.ranks = ranks, .rank = ranks - 1};
    for (std::int32_t n = 1; n < 40; ++n) {
      Batch batch{.tokens = std::vector<std::int32_t>(static_cast<std::size_t>(n), 1), .cu_seqlens = {0}};
      batch.targets = batch.tokens;
      batch.positions.assign(batch.tokens.size(), 0);
      for (std::int32_t border = 1; border <= n; ++border) batch.cu_seqlens.push_back(border);
      EXPECT_EQ(BatchFeed({}, {.max_tokens = n, .share = share}).send(ctx, batch).tokens.tokens.numel(),
                share.own_tokens(n));
    }
  }
}

}  // namespace
}  // namespace qtrain
