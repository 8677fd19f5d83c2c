#include "train/ranks/gradient_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "dist/queued_collective.h"
#include "tests/dist/local_ranks.h"
#include "train/ranks/rank_sums.h"

namespace qtrain {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

constexpr int kMicroBatches = 6;  // of a step

/// One parameter per unit, with odd sizes and both dtypes; the gradients of micro-batch i depend on i only.
class Model {
 public:
  explicit Model(const std::vector<std::pair<std::int64_t, DType>>& sizes) : store_("weights") {
    for (const auto& [n, dtype] : sizes) {
      store_.begin_unit(static_cast<int>(store_.all().size()));
      store_.declare(
          {.name = "p" + std::to_string(store_.all().size()), .shape = {n}, .dtype = dtype, .update = Update::trained});
    }
    store_.allocate();
    for (Param& p : store_.all()) trained_.push_back(&p);
  }
  ParamStore& store() { return store_; }
  std::span<Param* const> trained() const { return trained_; }
  std::array<const ParamStore*, 1> stores() const { return {&store_}; }

  /// Adds gradients unit by unit like a backward pass, and notifies the access of each.
  void add_micro_batch(std::int64_t number, Ctx& ctx, UnitAccess& access) {
    access.enter(ctx, {.unit = 0, .gradients = UnitAccess::Gradients::yes});
    for (int unit = static_cast<int>(trained_.size()) - 1; unit >= 0; --unit) {
      if (unit > 0) access.enter(ctx, {.unit = unit, .gradients = UnitAccess::Gradients::yes});
      if (number >= 0) add_unit(unit, number);
      access.finish_gradients(ctx, unit);
    }
  }
  void add_unit(int unit, std::int64_t number) {
    const Param* p = trained_[static_cast<std::size_t>(unit)];
    dispatch_float(p->grad.dtype, [&]<class T>() {
      T* const gradient = p->grad.as<T>();
      const std::int64_t n = p->grad.numel();
      for (std::int64_t i = 0; i < n; ++i) {
        const auto mixed = static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(number) * 40503U;
        const float value = static_cast<float>(mixed >> 8U) * 0x1p-24F - 0.5F;
        gradient[i] = T(static_cast<float>(gradient[i]) + value);
      }
    });
  }
  std::string bits() const {
    std::string all;
    for (const Param* p : trained_) all.append(reinterpret_cast<const char*>(p->grad.data), p->grad.bytes());
    return all;
  }

 private:
  ParamStore store_;
  std::vector<Param*> trained_;
};

const std::vector<std::pair<std::int64_t, DType>> kSizes{
    {1, DType::f32}, {1000003, DType::f32}, {7, DType::bf16}, {513, DType::bf16}, {64, DType::f32}};

struct Result {
  std::string bits;
  double sum = 0;
  friend bool operator==(const Result&, const Result&) = default;
};

// The results of two consecutive steps on each of `size` ranks.
std::vector<Result> reduced_by(int size, const ReductionOptions& options,
                               const std::vector<std::pair<std::int64_t, DType>>& sizes = kSizes) {
  std::vector<Result> results(static_cast<std::size_t>(size));
  const auto errors = test::on_ranks(size, [&](Ctx& ctx, Collective& ranks) {
    Model model(sizes);
    std::vector<double> sums(3);
    const Tensor view = view_of(std::span(sums), {3});
    const std::size_t before = allocated_bytes(DeviceKind::cpu).now;
    ShardRanks shards(ranks, {});
    GradientExchange exchange(shards, options, model.stores());
    RankSums rank_sums(ranks, options.order, view);
    if (size == 1) {
      EXPECT_EQ(allocated_bytes(DeviceKind::cpu).now - before, GradientExchange::bytes(1, options, model.stores()));
    }
    Result& result = results[static_cast<std::size_t>(ranks.rank())];
    for (int step = 0; step < 2; ++step) {
      model.store().zero_grads(ctx);
      std::ranges::fill(sums, 0.0);
      exchange.begin_step(kMicroBatches / size);
      for (int i = 0; i < kMicroBatches / size; ++i) {
        const int number = i * size + ranks.rank();
        // In the second step, the last micro-batch has no rows.
        const bool empty = step == 1 && number + 1 == kMicroBatches;
        model.add_micro_batch(empty ? -1 : number, ctx, exchange);
        if (!empty) sums[0] += 1.0 / (number + 3);
        exchange.end_micro_batch(ctx);
        rank_sums.end_micro_batch(ctx);
      }
      exchange.finish_step(ctx);
      rank_sums.finish_step(ctx);
      result.bits += model.bits();
      result.sum = sums[0];
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  return results;
}

TEST(GradientExchange, InOrderAnyNumberOfRanksHasTheSameBits) {
  const ReductionOptions ordered{.order = ReductionOrder::micro_batches};
  const Result alone = reduced_by(1, ordered)[0];
  for (const int size : {2, 3, 6})
    EXPECT_TRUE((std::ranges::all_of(reduced_by(size, ordered), [&](const Result& r) { return r == alone; }))) << size;
}

// Only the gradients of single micro-batches are rounded, not sums of several.
TEST(GradientExchange, InOrderRoundedGradientsHaveTheSameBitsToo) {
  const std::vector<std::pair<std::int64_t, DType>> sizes{{1, DType::f32}, {2001, DType::f32}, {513, DType::bf16}};
  ReductionOptions ordered{.order = ReductionOrder::micro_batches};
  const Result exact = reduced_by(1, ordered, sizes)[0];
  ordered.wire = DType::bf16;
  const Result alone = reduced_by(1, ordered, sizes)[0];
  EXPECT_NE(alone.bits, exact.bits);
  EXPECT_EQ(alone.sum, exact.sum);
  for (const int size : {2, 6})
    EXPECT_TRUE((std::ranges::all_of(reduced_by(size, ordered, sizes), [&](const Result& r) { return r == alone; })))
        << size;
}

TEST(GradientExchange, ActsWhereSomethingIsTrained) {
  ParamStore store("weights");
  store.declare({.name = "frozen", .shape = {8}});
  store.begin_unit(1);
  store.declare({.name = "trained", .shape = {8}, .update = Update::trained});
  store.allocate();
  const ParamStore* const stores[] = {&store};
  Solo alone;
  ShardRanks shards(alone, {});
  const GradientExchange exchange(shards, {.order = ReductionOrder::micro_batches, .beside = true}, stores);
  for (const int unit : {0, 1}) {
    EXPECT_EQ(exchange.acts_on({.unit = unit, .gradients = UnitAccess::Gradients::yes}), unit == 1);
    EXPECT_EQ(exchange.acts_on_gradients(unit), unit == 1);
  }
}

// Memory for the rounded copies that NCCL adds.
TEST(GradientExchange, OnlyWiderGradientsAreRounded) {
  const ReductionOptions options{.wire = DType::bf16};
  ParamStore store("weights", {DeviceKind::cuda});
  const ParamStore* const stores[] = {&store};
  store.declare({.name = "narrow", .shape = {5000}, .dtype = DType::bf16, .update = Update::trained});
  EXPECT_EQ(GradientExchange::bytes(2, options, stores), 0U);
  store.declare({.name = "wide", .shape = {3000}, .update = Update::trained});
  EXPECT_EQ(GradientExchange::bytes(2, options, stores), 3000 * sizeof(Bf16));
}

// Nothing of the first step remains in the second one.
TEST(GradientExchange, InOrderASumIsThatOfItsStepAlone) {
  Model model(kSizes), one(kSizes);
  Ctx ctx({}, MatmulPrecision::storage, 1);
  model.store().zero_grads(ctx);
  double sum = 0;
  const Tensor total = model.trained()[1]->grad, part = one.trained()[1]->grad;  // f32
  for (int number = 0; number + 1 < kMicroBatches; ++number) {
    one.store().zero_grads(ctx);
    one.add_unit(1, number);
    for (std::int64_t i = 0; i < part.numel(); ++i) total.as<float>()[i] += part.as<float>()[i];
    sum += 1.0 / (number + 3);
  }
  const Result reduced = reduced_by(3, {.order = ReductionOrder::micro_batches})[0];
  EXPECT_EQ(reduced.sum, sum);
  const std::string second = reduced.bits.substr(reduced.bits.size() / 2);
  const std::size_t first_parameter = sizeof(float);
  EXPECT_TRUE(second.substr(first_parameter, total.bytes()) ==
              std::string(reinterpret_cast<const char*>(total.data), total.bytes()));
}

// Results depend neither on buckets nor on whether units are reduced before the pass reaches the next one: each element
// is added in rank order.
TEST(GradientExchange, BucketsDoNotChangeTheBits) {
  for (const ReductionOrder order : {ReductionOrder::ranks, ReductionOrder::micro_batches}) {
    const Result whole = reduced_by(3, {.order = order})[0];
    for (const std::int64_t bytes : {1, 5000, 1 << 30}) {
      const auto results = reduced_by(3, {.order = order, .beside = true, .bucket_bytes = bytes});
      EXPECT_TRUE((std::ranges::all_of(results, [&](const Result& r) { return r == whole; }))) << bytes;
    }
  }
}

/// The first of two ranks with the same gradients, which arrive late.
struct SlowTwin : Solo {
  explicit SlowTwin(bool& c) : changed(c) {}
  int size() const override { return 2; }
  void all_to_all(Ctx&, ConstTensor sent, Tensor received) override {
    const std::vector<std::byte> before(sent.data, sent.data + sent.bytes());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    changed = changed || !std::ranges::equal(before, std::span(sent.data, sent.bytes()));
    const std::size_t row = sent.bytes() / 2;
    for (std::size_t r = 0; r < 2; ++r) std::memcpy(received.data + r * row, sent.data, row);
  }
  bool& changed;  ///< whether gradients changed while they were sent
};

// Nothing is added to gradients that are still being exchanged: the next micro-batch starts from zero.
TEST(GradientExchange, WaitsForPendingExchanges) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  Model model(kSizes);
  model.store().zero_grads(ctx);
  bool changed = false;
  QueuedCollective ranks(std::make_unique<SlowTwin>(changed));
  ShardRanks shards(ranks, {});
  GradientExchange exchange(shards, {.order = ReductionOrder::micro_batches, .beside = true, .bucket_bytes = 1},
                            model.stores());
  exchange.begin_step(2);
  model.add_micro_batch(0, ctx, exchange);
  for (const int unit : {4, 1, 0}) {
    exchange.enter(ctx, {.unit = unit, .gradients = UnitAccess::Gradients::yes});
    EXPECT_THAT(model.trained()[static_cast<std::size_t>(unit)]->grad.span<float>(), Each(0.0F)) << unit;
  }
  EXPECT_FALSE(changed);
}

TEST(GradientExchange, WithoutAnOrderRanksAgreeAndDifferFromOneRankByRounding) {
  const Result alone = reduced_by(1, {})[0];
  const std::vector<Result> three = reduced_by(3, {});
  EXPECT_TRUE(three[1] == three[0] && three[2] == three[0]);
  ASSERT_EQ(three[0].bits.size(), alone.bits.size());
  const auto* a = reinterpret_cast<const float*>(alone.bits.data());
  const auto* b = reinterpret_cast<const float*>(three[0].bits.data());
  // The first two parameters: sums of six float32 values below 1/2, each rounded to 2^-24 of at most 3.
  for (std::size_t i = 0; i < 1000004; ++i) ASSERT_NEAR(a[i], b[i], 6 * 2e-7) << i;
  EXPECT_NEAR(three[0].sum, alone.sum, 1e-12);
}

}  // namespace
}  // namespace qtrain
