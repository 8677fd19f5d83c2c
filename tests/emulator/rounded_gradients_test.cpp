// Gradients on a GPU that are rounded before they are sent to other ranks, where NCCL adds them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "core/transfer.h"
#include "kernels/elementwise.h"
#include "tests/emulator/small_model.h"
#include "train/ranks/gradient_exchange.h"

namespace qtrain::testing {
namespace {

using ::testing::Each;

/// Rank 0 of two; the other rank has the same gradients, so their sums are exact in any type.
class Twin : public Solo {
 public:
  int size() const override { return 2; }
  void all_reduce(Ctx& ctx, Tensor values, Reduction) override { add_twin(ctx, values); }
  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override {
    ASSERT_EQ(sum.data, sent.data) << "the row of rank 0";
    add_twin(ctx, sum);
  }
  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override {
    types.push_back(sent.dtype);
    const std::size_t row = sent.bytes() / 2;
    for (const std::size_t at : {std::size_t{0}, row}) ctx.stream().copy(received.data + at, sent.data, row);
  }
  std::unique_ptr<Collective> counterparts(int) override { return std::make_unique<Solo>(); }
  std::vector<DType> types;  ///< dtypes of the gradients that were added

 private:
  void add_twin(Ctx& ctx, const Tensor& values) {
    types.push_back(values.dtype);
    if (values.dtype != DType::f64) ops::copy(ctx, {.y = accumulate(values), .x = values});
  }
};

constexpr std::int64_t kElements = 5000;

float value_of(std::int64_t i) {
  return std::sin(static_cast<float>(i));
}

/// A parameter on the device, and the gradient that both ranks have.
struct Weights {
  explicit Weights(const Sharding& sharding)
      : store("weights", kCuda, Placement::device, sharding),
        p(store.declare({.name = "w", .shape = {kElements}, .update = Update::trained})),
        ctx(kCuda, MatmulPrecision::storage, 1) {
    store.allocate();
    store.zero_grads(ctx);
    for (const ShardGroup& group : store.groups()) ctx.stream().fill(group.grads.data, 0, group.grads.bytes());
    std::vector<float> values(kElements);
    for (std::int64_t i = 0; i < kElements; ++i) values[static_cast<std::size_t>(i)] = value_of(i);
    ctx.stream().copy(p.grad.data, values.data(), p.grad.bytes());
    ctx.synchronize();
  }
  std::vector<float> host(const Tensor& t) {
    std::vector<float> values(static_cast<std::size_t>(t.numel()));
    ctx.stream().copy(values.data(), t.data, t.bytes());
    ctx.synchronize();
    return values;
  }
  ParamStore store;
  Param& p;
  Ctx ctx;
  Twin ranks = {};
};

TEST(RoundedGradients, OfWholeStatesAreAddedByNccl) {
  Weights w({});
  ShardRanks shared(w.ranks, {});
  const std::array<const ParamStore*, 1> stores{&w.store};
  const ReductionOptions options{.wire = DType::bf16};
  const std::size_t before = allocated_bytes(DeviceKind::cuda).now;
  GradientExchange exchange(shared, options, stores);
  EXPECT_EQ(allocated_bytes(DeviceKind::cuda).now - before, GradientExchange::bytes(2, options, stores));
  exchange.end_micro_batch(w.ctx);
  exchange.finish_step(w.ctx);
  EXPECT_EQ(w.ranks.types, std::vector{DType::bf16});
  const std::vector<float> found = w.host(w.p.grad);
  for (std::int64_t i = 0; i < kElements; ++i)
    ASSERT_EQ(found[static_cast<std::size_t>(i)], 2 * static_cast<float>(Bf16(value_of(i)))) << i;
}

// The accumulated value keeps its precision.
TEST(RoundedGradients, OfDividedStatesAreAddedToFloat32) {
  Weights w({.stage = ZeroStage::gradients, .ranks = 2});
  ShardRanks shared(w.ranks, w.store.sharding());
  const std::array<const ParamStore*, 1> stores{&w.store};
  const ReductionOptions options{.wire = DType::bf16};
  const std::size_t before = allocated_bytes(DeviceKind::cuda).now;
  GradientExchange exchange(shared, options, stores);
  EXPECT_EQ(allocated_bytes(DeviceKind::cuda).now - before, GradientExchange::bytes(2, options, stores));
  exchange.begin_step(2);
  for (int batch = 0; batch < 2; ++batch) {
    exchange.finish_gradients(w.ctx, w.p.unit);
    exchange.end_micro_batch(w.ctx);
  }
  exchange.finish_step(w.ctx);
  EXPECT_THAT(w.ranks.types, Each(DType::bf16));
  const std::vector<float> found = w.host(w.p.own.grad);
  ASSERT_GT(found.size(), 1000U);
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_EQ(found[i], 4 * static_cast<float>(Bf16(value_of(static_cast<std::int64_t>(i))))) << i;
}

/// Two ranks that each have the full state.
struct LoneTwins : Solo {
  explicit LoneTwins(Twin& t) : twin(t) {}
  int size() const override { return 2; }
  std::unique_ptr<Collective> counterparts(int) override { return std::make_unique<Borrowed>(twin); }

  struct Borrowed : Solo {
    explicit Borrowed(Twin& t) : twin(t) {}
    int size() const override { return twin.size(); }
    void all_reduce(Ctx& ctx, Tensor values, Reduction how) override { twin.all_reduce(ctx, values, how); }
    void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override { twin.all_to_all(ctx, sent, received); }
    void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override {
      twin.types.push_back(mine.dtype);
      ctx.stream().copy(all.data, mine.data, mine.bytes());  // the other half belongs to the other rank
    }
    Twin& twin;
  };
  Twin& twin;
};

// Nothing is sent within such groups.
TEST(RoundedGradients, OfGroupsOfOneRankAreSentBetweenThem) {
  Weights w({.stage = ZeroStage::gradients, .ranks = 1, .replicas = 2});
  LoneTwins ranks(w.ranks);
  ShardRanks shared(ranks, w.store.sharding());
  const std::array<const ParamStore*, 1> stores{&w.store};
  const ReductionOptions options{.wire = DType::bf16};
  const std::size_t before = allocated_bytes(DeviceKind::cuda).now;
  GradientExchange exchange(shared, options, stores);
  EXPECT_EQ(allocated_bytes(DeviceKind::cuda).now - before, GradientExchange::bytes(2, options, stores));
  const ShardGroup& group = w.store.groups()[0];
  exchange.begin_step(2);
  exchange.finish_gradients(w.ctx, w.p.unit);
  EXPECT_EQ(w.host(group.own_grads)[1], value_of(1)) << "not rounded yet";
  exchange.end_micro_batch(w.ctx);
  exchange.finish_gradients(w.ctx, w.p.unit);
  exchange.finish_step(w.ctx);
  EXPECT_EQ(w.ranks.types, (std::vector{DType::bf16, DType::bf16})) << "sent to the rank that adds, and back";
  const std::vector<float> found = w.host(group.own_grads);
  for (std::int64_t i = 0; i < kElements / 2; ++i)
    ASSERT_EQ(found[static_cast<std::size_t>(i)], 4 * static_cast<float>(Bf16(value_of(i)))) << i;
}

}  // namespace
}  // namespace qtrain::testing
