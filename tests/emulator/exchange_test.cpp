// Exchanges on a stream of their own, with each wait between the two streams left out in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/emulator/left_out_waits.h"
#include "tests/emulator/small_model.h"
#include "train/divided_model.h"

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Rank 0 of two, whose other rank has the same: what NCCL would read and write is copied on the context's stream.
class Mirror : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void all_reduce(Ctx& ctx, Tensor values, Reduction) override { copy(ctx, values, values); }
  void broadcast(Ctx& ctx, Tensor values, int) override { copy(ctx, values, values); }
  void all_gather(Ctx& ctx, ConstTensor mine, Tensor all) override {
    for (int r = 0; r < size(); ++r) copy(ctx, row(all, r), mine);
  }
  void all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) override { copy(ctx, received, sent); }
  void reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) override {
    for (int r = 0; r < size(); ++r) copy(ctx, sum, row(sent, r));
  }
  std::unique_ptr<Collective> part(int, int) override { return std::make_unique<Solo>(); }
  std::unique_ptr<Collective> counterparts(int) override { return std::make_unique<Solo>(); }
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
};

struct Model : Transformer {
  Model(Ctx& ctx, ZeroStage stage)
      : Transformer(kCuda, {.config = small_model(3), .sharding = {.stage = stage, .ranks = 2, .buffers = 2}}) {
    commit({}, {{Pass::train, SmallBatch::kSize}});
    initialize_weights(ctx, 1);
  }
};

void update(Ctx& ctx, Transformer& model) {
  for (const Param* p : model.trained())
    if (p->own.count() > 0) ctx.stream().copy(p->own.value.data, p->own.grad.data, p->own.grad.bytes());
}

/// Two updates of two micro-batches each; nothing waits on the host before the end.
void train(ZeroStage stage, ReductionOrder order) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  Model model(ctx, stage);
  Mirror ranks;
  DividedModel divided(model, ranks, order);
  const SmallBatch batch(ctx);
  for (int i = 0; i < 2; ++i) {
    model.weights().zero_grads(ctx);
    divided.begin_step(2);
    for (int j = 0; j < 2; ++j) {
      batch.forward_and_backward(ctx, model);
      divided.end_micro_batch(ctx);
    }
    divided.finish_step(ctx);
    update(ctx, model);
    divided.finish_update(ctx);
  }
  synchronize(kCuda);
}

/// The same where every rank has all, with a bucket for each unit.
void train_whole(ReductionOrder order) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  Model model(ctx, ZeroStage::none);
  Mirror ranks;
  DeviceNumbers sums(kCuda, 1);
  const std::vector<Param*> trained = model.trained();
  GradientReducer reducer(ranks, {.order = order, .beside = true, .bucket_bytes = 1}, trained, sums.all());
  model.set_access(reducer);
  const SmallBatch batch(ctx);
  for (int i = 0; i < 2; ++i) {
    model.weights().zero_grads(ctx);
    sums.clear(ctx);
    reducer.begin_step(2);
    for (int j = 0; j < 2; ++j) {
      batch.forward_and_backward(ctx, model);
      reducer.end_micro_batch(ctx);
    }
    reducer.finish(ctx);
    update(ctx, model);
  }
  synchronize(kCuda);
}

/// The waits that nothing but their cost would tell of, from 1.
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

// Behind the first of several exchanges that begin at one point the others need not wait again for it: the second unit
// that a pass begins with, and the third, which comes where only the embedding was computed since; in the backward pass
// the units that are gathered where gradients of another have just been given to be added. The first wait of all is for
// weights that the host has waited for.
TEST(ExchangesBesideTheComputation, OfWeightsNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  EXPECT_THAT(waits_without_need([] { train(ZeroStage::weights, ReductionOrder::ranks); }),
              ElementsAre(1, 2, 4, 10, 19, 26, 28, 34, 43));
}

// Of the gathers after an update the first one waits for it; nothing reads what the last one brings.
TEST(ExchangesBesideTheComputation, OfGradientsNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  EXPECT_THAT(waits_without_need([] { train(ZeroStage::gradients, ReductionOrder::micro_batches); }),
              ElementsAre(14, 15, 16, 31, 32, 33, 34));
}

TEST(ExchangesBesideTheComputation, OfStatesAloneNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  EXPECT_THAT(waits_without_need([] { train(ZeroStage::optimizer, ReductionOrder::ranks); }),
              ElementsAre(7, 8, 9, 17, 18, 19, 20));
}

TEST(ExchangesBesideTheComputation, OfWholeGradientsNeedTheirWaits) {
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  EXPECT_THAT(waits_without_need([] { train_whole(ReductionOrder::ranks); }), IsEmpty());
}

}  // namespace
}  // namespace qtrain::testing
