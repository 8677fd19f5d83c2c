// Data that is kept on the host, skipping each wait between the two streams in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/elementwise.h"
#include "optim/state_offload.h"
#include "tests/emulator/left_out_waits.h"
#include "tests/emulator/small_model.h"

namespace qtrain::testing {
namespace {

/// State of three chunks that is copied from the host, processed twice, and copied back.
class UpdatedState {
 public:
  UpdatedState() { std::memset(host_.data(), 0, host_.bytes()); }

  void run() {
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    StateOffload offload(kCuda, {chunk(0), chunk(1), chunk(2)});
    for (int step = 0; step < 2; ++step) {
      ctx.stream().fill(device_.data(), 0, device_.bytes());
      ctx.stream().copy(host_.data(), device_.data(), host_.bytes());
      offload.run(ctx, [&](const StateChunk& p) {
        ops::fill(ctx, {.y = p.state[0], .value = static_cast<double>(p.param) + step});
        ops::add(ctx, {.y = p.state[0], .a = p.state[0], .b = p.state[0]});
      });
      ctx.stream().copy(device_.data(), host_.data(), host_.bytes());
    }
    ctx.synchronize();
  }
  float first_of(std::size_t chunk) const { return reinterpret_cast<const float*>(host_.data())[chunk * kElements]; }

 private:
  static constexpr std::size_t kElements = 64, kChunks = 3;

  StateChunk chunk(std::size_t number) {
    return {.param = number,
            .begin = 0,
            .count = kElements,
            .state = {{host_.data() + number * kElements * sizeof(float), DType::f32, {kElements}, {}}}};
  }

  PinnedMemory host_{kCuda, kChunks* kElements * sizeof(float)};
  DeviceMemory device_{kCuda, kChunks* kElements * sizeof(float)};
};

TEST(OptimizerStateOnTheHost, NeedsEachOfItsWaits) {
  UpdatedState state;
  // In each run: a wait for earlier work, one for the last chunk's copy back, and per chunk one for its copy and one
  // for the work on it.
  expect_to_need_each_wait(2 * (2 + 2 * 3), [&] { state.run(); });
  if (emulation::kStates) state.run();
  for (const std::size_t chunk : {0, 1, 2}) EXPECT_EQ(state.first_of(chunk), 2.0f * static_cast<float>(chunk + 1));
}

/// Trains a model twice whose block inputs are kept on the host.
void train_twice(const std::string& recompute) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  Transformer model(kCuda, {.config = small_model(5)});
  Runner runner(model, {{.recompute = {RecomputePolicy::named(recompute), BlockInputs::host}},
                        {{Pass::train, SmallBatch::kSize}}});
  runner.initialize_weights(ctx, 1);
  model.weights().zero_grads(ctx);
  const SmallBatch batch(ctx);
  for (int pass = 0; pass < 2; ++pass) batch.forward_and_backward(ctx, runner);
  ctx.synchronize();
}

// n - 2 of n groups are moved, with four waits each: on the way out, for a free buffer, on return, and for a buffer
// free again.
TEST(BlockInputsOnTheHost, NeedEachOfTheirWaits) {
  expect_to_need_each_wait(2 * 4 * (5 - 2), [] { train_twice("block"); });
}
TEST(BlockInputsOnTheHost, NeedEachOfTheirWaitsInGroups) {
  expect_to_need_each_wait(2 * 4 * (3 - 2), [] { train_twice("blocks:2"); });
}

}  // namespace
}  // namespace qtrain::testing
