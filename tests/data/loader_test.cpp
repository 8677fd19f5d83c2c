#include "data/loader.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/data/support.h"

namespace qtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ids = std::vector<std::int32_t>;

void add(DatasetBuilder& data, const Ids& ids, const Ids& labels, const Ids& starts = {}) {
  data.append({.input_ids = ids, .labels = labels, .document_starts = starts});
}

/// Row i has i % 4 + 1 tokens 100 * i + t, all of them targets.
Dataset numbered(int rows) {
  DatasetBuilder data;
  for (int i = 0; i < rows; ++i) {
    Ids ids;
    for (int t = 0; t <= i % 4; ++t) ids.push_back(100 * i + t);
    add(data, ids, ids);
  }
  return std::move(data).finish();
}

TEST(Loader, TargetsAreShiftedInsideTheirDocumentAndNothingIsPadded) {
  DatasetBuilder builder;
  add(builder, {10, 11, 12}, {10, kNoTarget, 12});
  add(builder, {20, 21, 22, 23, 24}, {20, 21, 22, 23, 24}, {0, 2});
  add(builder, {}, {});
  add(builder, {30}, {30});
  const Dataset data = std::move(builder).finish();
  const Batch b = make_batch(data, {0, 1, 2, 3});
  EXPECT_THAT(b.tokens, ElementsAre(10, 11, 12, 20, 21, 22, 23, 24, 30));
  EXPECT_THAT(b.targets, ElementsAre(-100, 12, -100, 21, -100, 23, 24, -100, -100));
  EXPECT_THAT(b.positions, ElementsAre(0, 1, 2, 0, 1, 0, 1, 2, 0));
  EXPECT_THAT(b.cu_seqlens, ElementsAre(0, 3, 5, 8, 9));
  EXPECT_EQ(b.target_count, 4);
  EXPECT_EQ(b.rows, 4);
  EXPECT_EQ(b.longest, 3);
  EXPECT_EQ(data.statistics().target_tokens, 4) << "the statistics count as the batches do";
  EXPECT_EQ(data.statistics().untargeted_rows, 2);
}

TEST(Loader, ABatchWithoutRowsIsEmpty) {
  const Dataset data = numbered(3);
  const Loader last(data, {.batch_size = 2, .rank = 1, .world = 2});
  EXPECT_EQ(last.batches_per_epoch(), 1);
  EXPECT_EQ(last.batch(0, 0).rows, 1);
  const Loader third(data, {.batch_size = 2, .rank = 2, .world = 3});
  const Batch none = third.batch(0, 0);
  EXPECT_EQ(none.rows, 0);
  EXPECT_THAT(none.tokens, IsEmpty());
  EXPECT_THAT(none.cu_seqlens, ElementsAre(0));
}

TEST(Loader, EachRowIsVisitedOnceAnEpochByAnyNumberOfRanks) {
  const Dataset data = numbered(23);
  for (const int world : {1, 2, 3}) {
    std::multiset<std::int64_t> seen;
    for (int rank = 0; rank < world; ++rank) {
      const Loader loader(data, {.batch_size = 4, .rank = rank, .world = world});
      EXPECT_EQ(loader.batches_per_epoch(), (23 + 4 * world - 1) / (4 * world));
      for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i)
        for (const std::int64_t row : loader.rows_of(2, i)) seen.insert(row);
    }
    EXPECT_EQ(seen.size(), 23u);
    EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 23u);
  }
}

TEST(Loader, OneOptimizerStepHoldsTheSameRowsHoweverItIsSplit) {
  const Dataset data = numbered(64);
  const auto step_rows = [&](std::int64_t batch_size, int world, std::int64_t accumulation) {
    std::multiset<std::int64_t> rows;
    for (int rank = 0; rank < world; ++rank) {
      const Loader loader(data, {.batch_size = batch_size, .rank = rank, .world = world});
      for (std::int64_t i = accumulation; i < 2 * accumulation; ++i)
        for (const std::int64_t row : loader.rows_of(0, i)) rows.insert(row);
    }
    return rows;
  };
  const auto whole = step_rows(8, 1, 1);
  EXPECT_EQ(whole.size(), 8u);
  for (const auto& split :
       {step_rows(2, 1, 4), step_rows(1, 1, 8), step_rows(4, 2, 1), step_rows(1, 2, 4), step_rows(2, 4, 1)})
    EXPECT_EQ(split, whole);
}

TEST(Loader, BatchesDoNotDependOnWhatWasAskedBefore) {
  const Dataset data = numbered(20);
  const Loader used(data, {.batch_size = 3}), fresh(data, {.batch_size = 3});
  for (const std::int64_t epoch : {0, 5, 1}) (void)used.batch(epoch, 2);
  EXPECT_EQ(used.batch(3, 4).tokens, fresh.batch(3, 4).tokens);
  EXPECT_NE(used.batch(3, 4).tokens, fresh.batch(4, 4).tokens);
}

TEST(Loader, SumsOverAllRanksAgreeWithTheBatches) {
  const Dataset data = numbered(22);
  for (std::int64_t i = 0; i < 3; ++i) {
    std::int64_t targets = 0;
    for (int rank = 0; rank < 2; ++rank) {
      const Batch b = Loader(data, {.batch_size = 4, .rank = rank, .world = 2}).batch(1, i);
      targets += b.target_count;
    }
    const Loader loader(data, {.batch_size = 4, .rank = 0, .world = 2});
    EXPECT_EQ(loader.global_targets(1, i), targets);
  }
}

TEST(Loader, DropLastLeavesOutTheShortBatch) {
  const Dataset data = numbered(23);
  EXPECT_EQ(Loader(data, {.batch_size = 4, .world = 2, .drop_last = true}).batches_per_epoch(), 2);
  EXPECT_EQ(Loader(data, {.batch_size = 4, .world = 2}).batches_per_epoch(), 3);
  EXPECT_EQ(Loader(data, {.batch_size = 3}).max_batch_tokens(), 12);
  test::error_of(ErrorKind::usage, [&] { Loader(data, {.batch_size = 0}); });
}

TEST(Loader, IdsThatNoRowHadAreRefused) {
  DatasetBuilder builder;
  add(builder, {1, 2, 9}, {1, 2, 9});
  Dataset data = std::move(builder).finish();
  EXPECT_EQ(make_batch(data, {0}).size(), 3);
  data.statistics().max_token_id = 8;  // as if the 9 came from a damaged file
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { make_batch(data, {0}); }), ::testing::HasSubstr("damaged"));
}

}  // namespace
}  // namespace qtrain
