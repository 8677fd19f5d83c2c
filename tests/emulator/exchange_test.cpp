// Exchanges on a separate stream, skipping each wait between the two streams in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/emulator/left_out_waits.h"
#include "tests/emulator/small_model.h"
#include "train/ranks/gradient_exchange.h"
#include "train/ranks/shard_ranks.h"

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Rank 0 of several identical ranks: what NCCL would read and write is copied on the context's stream.
class Mirror : public Collective {
 public:
  explicit Mirror(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void all_reduce(Ctx& ctx, Tensor values, Reduction) override { copy(ctx, values, values); }
  void broadcast(Ctx& ctx, Tensor values, int) override { copy(ctx, values, values); }
  void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override {
    for (int r = 0; r < size(); ++r) copy(ctx, row(all, r), mine);
  }
  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override { copy(ctx, received, sent); }
  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override {
    for (int r = 0; r < size(); ++r) copy(ctx, sum, row(sent, r));
  }
  std::unique_ptr<Collective> part(int, int size) override { return std::make_unique<Mirror>(size); }
  std::unique_ptr<Collective> counterparts(int size) override { return part(0, size_ / size); }
  void barrier(Ctx&) override {}

 private:
  template <class T>
  T row(const T& all, int r) const {
    const std::int64_t n = all.numel() / size();
    return all.reshaped({all.numel()}).slice(r * n, n);
  }
  static void copy(Ctx& ctx, const Tensor& to, const ConstTensor& from) {
    ctx.stream().copy(to.data, from.data, from.bytes());
  }
  int size_;
};

struct Training {
  ZeroStage stage;
  ReductionOrder order = ReductionOrder::ranks;
  int blocks = 3, replicas = 1, updates = 2;
};

struct Model : Transformer {
  Model(Ctx& ctx, const Training& t)
      : Transformer(kCuda, {.config = small_model(t.blocks),
                            .sharding = {.stage = t.stage, .ranks = 2, .replicas = t.replicas, .buffers = 2}}) {
    runner.initialize_weights(ctx, 1);
  }
  Runner runner{*this, {.passes = {{Pass::train, SmallBatch::kSize}}}};
};

void update(Ctx& ctx, Transformer& model) {
  for (const Param* p : model.trained())
    if (p->own.count() > 0) ctx.stream().copy(p->own.value.data, p->own.grad.data, p->own.grad.bytes());
}

/// Updates of two micro-batches each, with one bucket per unit; nothing waits on the host before the end.
void train(const Training& t) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  Model model(ctx, t);
  Mirror ranks(2 * t.replicas);
  ShardRanks shards(ranks, model.options().sharding);
  GradientExchange exchange(shards, {.order = t.order, .beside = true, .bucket_bytes = 1}, model.params().stores());
  model.runner.set_access(exchange);
  const SmallBatch batch(ctx);
  for (int i = 0; i < t.updates; ++i) {
    model.weights().zero_grads(ctx);
    exchange.begin_step(2);
    for (int j = 0; j < 2; ++j) {
      batch.forward_and_backward(ctx, model.runner);
      exchange.end_micro_batch(ctx);
    }
    exchange.finish_step(ctx);
    update(ctx, model);
    exchange.finish_update(ctx);
  }
  synchronize(kCuda);
}

/// Waits, numbered from 1, that could be skipped without any error.
std::vector<std::uint64_t> waits_without_need(const std::function<void()>& program) {
  const std::uint64_t count = waits_of(program);
  std::vector<std::uint64_t> found;
  for (std::uint64_t wait = 1; wait <= count; ++wait) {
    const std::string complaint = complaint_without(wait, program);
    if (complaint == "none")
      found.push_back(wait);
    else
      EXPECT_THAT(complaint, HasSubstr("race of streams")) << "without wait " << wait;
  }
  return found;
}

// If several exchanges begin at one point, only the first has to wait: the second unit at the beginning of a pass does
// not, nor the third, because only the embedding is computed in between; nor, in the backward pass, units whose gather
// follows the start of a reduction. The very first wait is for weights that the host has already waited for.
TEST(ExchangesBesideTheComputation, OfWeightsNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  EXPECT_THAT(waits_without_need([] { train({.stage = ZeroStage::weights}); }),
              ElementsAre(1, 2, 4, 10, 19, 26, 28, 34, 43));
}

// Only the first gather after an update waits for it; nothing reads the result of the last one.
TEST(ExchangesBesideTheComputation, OfGradientsNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  const Training in_order{.stage = ZeroStage::gradients, .order = ReductionOrder::micro_batches};
  EXPECT_THAT(waits_without_need([&] { train(in_order); }), ElementsAre(14, 15, 16, 31, 32, 33, 34));
}

TEST(ExchangesBesideTheComputation, OfStatesAloneNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  EXPECT_THAT(waits_without_need([] { train({.stage = ZeroStage::optimizer}); }), ElementsAre(7, 8, 9, 17, 18, 19, 20));
}

TEST(ExchangesBesideTheComputation, OfWholeGradientsNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  EXPECT_THAT(waits_without_need([] { train({.stage = ZeroStage::none}); }), IsEmpty());
}

// Sums across groups immediately follow those within groups, in the last micro-batch; gathers after the update are as
// above.
TEST(ExchangesBesideTheComputation, OfGroupsNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  const Training groups{
      .stage = ZeroStage::gradients, .order = ReductionOrder::ranks, .blocks = 2, .replicas = 2, .updates = 1};
  EXPECT_THAT(waits_without_need([&] { train(groups); }), ElementsAre(6, 8, 10, 13, 14, 15));
}

}  // namespace
}  // namespace qtrain::testing
