#include "train/ranks/gradient_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tests/dist/local_ranks.h"

namespace qtrain {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// One parameter per unit, with these numbers of elements.
struct Units {
  explicit Units(const std::vector<std::int64_t>& sizes) : store("weights") {
    for (const std::int64_t n : sizes) {
      const int unit = static_cast<int>(store.all().size());
      store.begin_unit(unit);
      store.declare({.name = std::to_string(unit), .shape = {n}, .update = Update::trained});
    }
    store.allocate();
    for (Param& p : store.all()) trained.push_back(&p);
  }
  ParamStore store;
  std::vector<Param*> trained;
};

// Each of two ranks has 4 elements of each block, which take 32 bytes. The first unit is completed last.
TEST(GradientBuckets, JoinUnitsInTheOrderOfTheBackwardPass) {
  const Units units({5, 8, 8, 8});
  const auto buckets = make_buckets(units.trained, 2, 64);
  ASSERT_EQ(buckets.size(), 2U);
  const auto units_of = [](const GradientBucket& bucket) {
    std::vector<int> all;
    for (const GradientBucket::Part& p : bucket.parts) all.push_back(p.unit);
    return all;
  };
  EXPECT_THAT(units_of(buckets[0]), ElementsAre(3, 2));
  EXPECT_EQ(buckets[0].row, 8);
  EXPECT_THAT(units_of(buckets[1]), ElementsAre(1, 0));
  EXPECT_EQ(buckets[1].row, 4 + 3);
  EXPECT_EQ(make_buckets(units.trained, 2, 1).size(), 4U);
  EXPECT_EQ(make_buckets(units.trained, 2, 64, DType::bf16).size(), 1U) << "half the bytes";
}

// The rows of three ranks: 3, 3 and 2 of eight elements, the first three of which are in one gradient; the message is
// cut at every position.
TEST(GradientBuckets, PackTheRowsOfEachRank) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  const Units units({5, 3});
  for (Param* p : units.trained)
    for (std::int64_t i = 0; i < p->grad.numel(); ++i)
      p->grad.as<float>()[i] = static_cast<float>(10 * (p->unit + 1) + i);
  const auto buckets = make_buckets(units.trained, 3, 1000);
  ASSERT_EQ(buckets[0].row, 3);
  std::vector<float> memory(9, -1);
  const auto message = [&](std::int64_t count) {
    return view_of(std::span(memory).first(static_cast<std::size_t>(3 * count)), {3, count});
  };
  pack(ctx, buckets[0], {0, 3}, message(3));
  EXPECT_THAT(memory, ElementsAre(20, 21, 22, 10, 11, 12, 13, 14, 0));
  pack(ctx, buckets[0], {1, 2}, message(2));
  EXPECT_THAT(std::vector(memory.begin(), memory.begin() + 6), ElementsAre(21, 22, 11, 12, 14, 0));
  for (float& value : memory) value *= 2;
  unpack(ctx, buckets[0], {1, 2}, message(2));
  EXPECT_THAT(units.trained[0]->grad.span<float>(), ElementsAre(10, 22, 24, 13, 28));
  EXPECT_THAT(units.trained[1]->grad.span<float>(), ElementsAre(20, 42, 44));
}

// Messages are rounded in both directions, but sums are not.
TEST(GradientBuckets, OfNarrowMessagesAreAddedInFullPrecision) {
  constexpr int kRanks = 3;
  const auto value = [](int rank, std::int64_t i) {
    return std::sin(static_cast<float>(97 * i + 13 * rank)) * std::exp2(static_cast<float>(rank));
  };
  const auto errors = test::on_ranks(kRanks, [&](Ctx& ctx, Collective& ranks) {
    const Units units({500, 301});
    for (Param* p : units.trained)
      for (std::int64_t i = 0; i < p->grad.numel(); ++i) p->grad.as<float>()[i] = value(ranks.rank(), i);
    std::vector<Bf16> memory(static_cast<std::size_t>(2 * kRanks * 100));
    const Tensor both = view_of(std::span(memory), {2 * kRanks, 100});
    for (const GradientBucket& bucket : make_buckets(units.trained, kRanks, 1, DType::bf16))
      all_reduce(ctx, ranks, bucket, both);
    for (const Param* p : units.trained)
      for (std::int64_t i = 0; i < p->grad.numel(); ++i) {
        float sum = 0;
        for (int r = 0; r < kRanks; ++r) sum += Bf16(value(r, i));
        ASSERT_EQ(p->grad.as<float>()[i], static_cast<float>(Bf16(sum))) << i;
      }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// The placement of a GPU's arena, which the harness does not reproduce because it puts guards between tensors.
TEST(GradientSlabs, JoinWhatAlignmentAloneSeparates) {
  std::vector<std::byte> memory(4096);
  const auto at = [&](std::size_t begin, Shape shape, DType d = DType::f32) {
    return Tensor{memory.data() + begin, d, shape, {}};
  };
  const Tensor begins = at(512, {60}), follows = at(768, {8, 8}), touches = at(1024, {1}), ends = at(1280, {3}),
               behind_another = at(1792, {64}), smaller = at(2048, {65}, DType::bf16),
               next = at(2304, {5}, DType::bf16), before = at(0, {64});
  const auto slabs = slabs_of({begins, follows, touches, ends, behind_another, smaller, next, before});
  const auto extent = [&](const Tensor& t) { return std::tuple(t.data - memory.data(), t.dtype, t.numel()); };
  std::vector<std::tuple<std::ptrdiff_t, DType, std::int64_t>> extents;
  for (const Tensor& slab : slabs) extents.push_back(extent(slab));
  EXPECT_THAT(extents, ElementsAre(extent(before), std::tuple(512, DType::f32, (1280 - 512) / 4 + 3),
                                   extent(behind_another), std::tuple(2048, DType::bf16, (2304 - 2048) / 2 + 5)));
  EXPECT_THAT(slabs_of({}), IsEmpty());
}

// 10 us and 1 GB/s: nine times the latency is 90 us, or 90 kB.
TEST(GradientBuckets, AreAsLargeAsTheLatencyAsksFor) {
  EXPECT_NEAR(static_cast<double>(bucket_bytes({10e-6, 10e-6 + 1e-3, 0, 1'000'000})), 90e3, 1);
  EXPECT_EQ(bucket_bytes({10e-6, 10e-6, 0, 1'000'000}), bucket_bytes({1e-9, 1e-3, 0, 1'000'000})) << "the least";
  EXPECT_EQ(bucket_bytes({1, 1.001, 0, 1'000'000}), 32 << 20) << "the most";
}

TEST(GradientBuckets, RanksAgreeOnWhatTheyMeasure) {
  std::vector<std::int64_t> sizes(3);
  const auto errors = test::on_ranks(3, [&](Ctx& ctx, Collective& ranks) {
    const LinkTimes times = time_link(ctx, ranks);
    EXPECT_GT(times.small_seconds, 0);
    EXPECT_GT(times.large_bytes, times.small_bytes);
    sizes[static_cast<std::size_t>(ranks.rank())] = bucket_bytes(times);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(sizes, Each(sizes[0]));
}

}  // namespace
}  // namespace qtrain
