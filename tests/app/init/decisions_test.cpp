// The numbers that `qtrain init` chooses.
#include "app/init/decisions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace qtrain::init {
namespace {

DatasetStatistics rows_of(std::vector<std::int32_t> lengths) {
  DatasetStatistics rows;
  rows.source_rows = rows.rows = static_cast<std::int64_t>(lengths.size());
  rows.lengths = std::move(lengths);
  return rows;
}

/// `n` rows of `length`, then more rows.
DatasetStatistics rows_of(std::size_t n, std::int32_t length, std::vector<std::int32_t> more) {
  more.insert(more.begin(), n, length);
  return rows_of(std::move(more));
}

TEST(InitDecisions, HoldOutATenthButNotOfAFewRows) {
  struct Case {
    std::int64_t rows, held;
  };
  for (const auto& [rows, held] :
       std::vector<Case>{{1, 0}, {19, 0}, {20, 2}, {29, 2}, {300, 30}, {2'000, 200}, {1'000'000, 200}})
    EXPECT_EQ(held_out_rows(rows), held) << rows;
}

TEST(InitDecisions, MakeEnoughUpdates) {
  struct Case {
    std::int64_t rows, epochs, per_update, updates;
  };
  for (const auto& [rows, epochs, per_update, updates] : std::vector<Case>{{1, 10, 1, 10},
                                                                           {49, 10, 1, 490},
                                                                           {50, 5, 1, 250},
                                                                           {200, 3, 2, 300},
                                                                           {1'800, 3, 16, 339},
                                                                           {2'000, 2, 8, 500},
                                                                           {20'000, 1, 64, 313},
                                                                           {1'000'000, 1, 64, 15'625}}) {
    EXPECT_EQ(epochs_over(rows), epochs) << rows;
    EXPECT_EQ(rows_per_update(rows, epochs), per_update) << rows;
    EXPECT_EQ(updates_of(rows, epochs, per_update), updates) << rows;
  }
}

TEST(InitDecisions, GiveNarrowModelsHigherRates) {
  struct Case {
    RateFor model;
    double rate;
  };
  for (const auto& [model, rate] : std::vector<Case>{{{Method::lora, 4096}, 2e-4},
                                                     {{Method::qlora, 4096}, 2e-4},
                                                     {{Method::lora, 1024}, 6e-4},
                                                     {{Method::lora, 576}, 9e-4},
                                                     {{Method::lora, 48}, 2e-3},
                                                     {{Method::full, 4096}, 2e-5},
                                                     {{Method::full, 576}, 9e-5},
                                                     {{Method::pretrain, 576}, 9e-5},
                                                     {{Method::pretrain, 576, true}, 1e-3},
                                                     {{Method::pretrain, 48, true}, 3e-3},
                                                     {{Method::lora, 8192}, 1e-4}})
    EXPECT_EQ(learning_rate(model), rate) << model.hidden_size;
}

TEST(InitDecisions, TakeALengthForNearlyAllRows) {
  EXPECT_EQ(row_length(rows_of(100, 30, {}), 4096), 64);
  EXPECT_EQ(row_length(rows_of(100, 65, {}), 4096), 128);
  EXPECT_EQ(row_length(rows_of(100, 300, {}), 256), 256);  // what the model can take
  EXPECT_EQ(row_length(rows_of(995, 100, std::vector<std::int32_t>(5, 120)), 4096), 128);
  EXPECT_DOUBLE_EQ(truncated_share(rows_of(99, 100, {300}), 256), 0.01);
  EXPECT_DOUBLE_EQ(truncated_share(rows_of({}), 256), 0);
}

// 5 of 1000 rows may be truncated, but these have a large part of the tokens.
TEST(InitDecisions, TakeALongerOneForRowsWithMuchOfTheTokens) {
  const DatasetStatistics long_tail = rows_of(990, 100, {200, 200, 200, 200, 200, 200, 2'000, 2'000, 2'000, 2'000});
  EXPECT_GT(row_length(long_tail, 4096), 128);
  EXPECT_LE(row_length(long_tail, 4096), std::max<std::int64_t>(2 * long_tail.percentile(0.99), 256));
}

TEST(InitDecisions, PackTextsIntoEnoughRows) {
  EXPECT_EQ(packed_length(1e6, 512), 512);
  EXPECT_EQ(packed_length(20'000, 512), 256);
  EXPECT_EQ(packed_length(10, 512), 64);
  EXPECT_EQ(packed_length(10, 48), 48);
  EXPECT_EQ(packed_length(1e9, 1000), 512);
}

TEST(InitDecisions, FillMicroBatches) {
  EXPECT_EQ(busy_micro_batch(16, 100, DeviceKind::cpu), 8);
  EXPECT_EQ(busy_micro_batch(16, 2'000, DeviceKind::cpu), 1);
  EXPECT_EQ(busy_micro_batch(16, 2'000, DeviceKind::cuda), 8);
  EXPECT_EQ(busy_micro_batch(4, 10, DeviceKind::cuda), 4);
  EXPECT_EQ(busy_micro_batch(4, 0, DeviceKind::cpu), 4);
}

TEST(InitDecisions, LogAboutThirtyTimes) {
  EXPECT_EQ(log_interval(10), 1);
  EXPECT_EQ(log_interval(150), 5);
  EXPECT_EQ(log_interval(100'000), 10);
}

}  // namespace
}  // namespace qtrain::init
