#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/formats/json.h"
#include "core/rng.h"
#include "tests/data/support.h"

namespace qtrain {
namespace {

std::vector<std::int64_t> counted(std::int64_t n) {
  std::vector<std::int64_t> v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), 0);
  return v;
}

TEST(Sampler, EveryEpochVisitsEveryRowOnceInAnOrderOfItsOwn) {
  const std::vector<std::int64_t> lengths(1000, 1);
  const auto first = epoch_order(lengths, 0, {.seed = 42}), second = epoch_order(lengths, 1, {.seed = 42});
  for (auto order : {first, second, epoch_order(lengths, 0, {.seed = 43})}) {
    EXPECT_NE(order, counted(1000));
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, counted(1000));
  }
  EXPECT_NE(first, second);
  EXPECT_NE(first, epoch_order(lengths, 0, {.seed = 43}));
  EXPECT_EQ(second, epoch_order(lengths, 1, {.seed = 42}));
}

// A resumed run must use the order of the original run, even after an update of the program.
TEST(Sampler, TheOrderIsAFixedFunctionOfTheSeed) {
  EXPECT_EQ(random_permutation(10, {.seed = 42, .epoch = 0}),
            (std::vector<std::int64_t>{7, 0, 6, 2, 4, 8, 5, 9, 1, 3}));
  EXPECT_EQ(random_permutation(10, {.seed = 42, .epoch = 3}),
            (std::vector<std::int64_t>{7, 4, 6, 2, 8, 9, 3, 5, 0, 1}));
}

TEST(Sampler, AllPermutationsAreEquallyLikely) {
  std::map<std::vector<std::int64_t>, int> seen;
  constexpr int kDraws = 24000;
  for (int epoch = 0; epoch < kDraws; ++epoch)
    ++seen[random_permutation(4, {.seed = 7, .epoch = std::uint64_t(epoch)})];
  ASSERT_EQ(seen.size(), 24u);
  double chi_square = 0;
  for (const auto& [permutation, count] : seen) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 49.7);  // 23 degrees of freedom, p = 0.001
}

TEST(Sampler, GroupingByLengthAgreesWithTransformers) {
  for (const Json& golden : read_json(test::golden_folder() / "grouping.json")) {
    auto order = golden["permutation"].get<std::vector<std::int64_t>>();
    group_by_length(order, golden["lengths"].get<std::vector<std::int64_t>>(), golden["group"]);
    EXPECT_EQ(order, golden["order"].get<std::vector<std::int64_t>>());
  }
}

TEST(Sampler, GroupedEpochsBeginWithTheLongestRow) {
  std::vector<std::int64_t> lengths(300, 5);
  lengths[211] = 99;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch)
    EXPECT_EQ(epoch_order(lengths, epoch, {.sampling = Sampling::group_by_length, .group = 4}).front(), 211);
}

TEST(Sampler, SequentialKeepsTheFilesOrder) {
  const std::vector<std::int64_t> lengths = {3, 9, 1};
  EXPECT_EQ(epoch_order(lengths, 4, {.sampling = Sampling::sequential}), counted(3));
  EXPECT_TRUE(epoch_order({}, 0, {.sampling = Sampling::group_by_length}).empty());
}

TEST(SamplerProperties, GroupingByLengthKeepsEveryRowAndSortsWithinMegabatches) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto draw = philox(seed, 5, 0);
    const std::int64_t n = draw[0] % 700, group = 1 + draw[1] % 20;
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < n; ++i)
      lengths.push_back(philox(seed, 6, static_cast<std::uint64_t>(i))[0] % (1 + draw[2] % 100));
    auto order = epoch_order(lengths, 2, {.sampling = Sampling::group_by_length, .seed = seed, .group = group});
    const auto length_at = [&](std::int64_t i) {
      return lengths[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
    };
    if (n > 0) {
      EXPECT_EQ(length_at(0), *std::max_element(lengths.begin(), lengths.end())) << seed;
    }
    // Except for the row that was swapped with the longest one, lengths descend within each megabatch.
    const std::int64_t megabatch = group * std::max<std::int64_t>(std::min<std::int64_t>(n / (4 * group), 50), 1);
    int rises = 0;
    for (std::int64_t i = 1; i < n; ++i) rises += i % megabatch != 0 && length_at(i) > length_at(i - 1);
    EXPECT_LE(rises, 2) << seed;
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, counted(n)) << seed;
  }
}

}  // namespace
}  // namespace qtrain
