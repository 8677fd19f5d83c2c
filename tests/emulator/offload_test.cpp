// What waits on the host meanwhile, with each wait between the two streams left out in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "emulator/driver.h"
#include "kernels/elementwise.h"
#include "model/transformer.h"
#include "optim/state_offload.h"

namespace qtrain::testing {
namespace {

using emulation::Driver;

constexpr Device kCuda{DeviceKind::cuda, 0};

/// How many waits a program asks for.
std::uint64_t waits_of(const std::function<void()>& program) {
  const std::uint64_t before = Driver::instance().waits().asked_for;
  program();
  return Driver::instance().waits().asked_for - before;
}

/// The error of a program without one of its waits.
std::string complaint_without(std::uint64_t wait, const std::function<void()>& program) {
  emulation::Waits& waits = Driver::instance().waits();
  waits.left_out = waits.asked_for + wait;
  std::string complaint = "none";
  try {
    program();
  } catch (const Error& e) {
    complaint = e.what();
  }
  waits.left_out = 0;
  return complaint;
}

void expect_to_need_each_wait(std::uint64_t count, const std::function<void()>& program) {
  ASSERT_EQ(waits_of(program), count);
  if (!emulation::kStates) GTEST_SKIP() << "a sanitizer's build does not see what kernels touch";
  for (std::uint64_t wait = 1; wait <= count; ++wait)
    EXPECT_THAT(complaint_without(wait, program), ::testing::HasSubstr("race of streams")) << "without wait " << wait;
}

/// State of three chunks that comes from the device, is worked on twice, and goes back to it.
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
  // Each time: what was queued before, the last chunk's way back, and per chunk its coming and the work on it.
  expect_to_need_each_wait(2 * (2 + 2 * 3), [&] { state.run(); });
  if (emulation::kStates) state.run();
  for (const std::size_t chunk : {0, 1, 2}) EXPECT_EQ(state.first_of(chunk), 2.0f * static_cast<float>(chunk + 1));
}

/// i32 on the device.
class Integers {
 public:
  Integers(Ctx& ctx, const std::vector<std::int32_t>& values) : memory_(ctx.device(), values.size() * 4) {
    view_ = {memory_.data(), DType::i32, {static_cast<std::int64_t>(values.size())}, ctx.device()};
    ctx.stream().copy(memory_.data(), values.data(), memory_.bytes());
  }
  ConstTensor view() const { return view_; }

 private:
  DeviceMemory memory_;
  Tensor view_;
};

ModelConfig model_of(int count) {
  return parse_model_config({{"model_type", "llama"},
                             {"vocab_size", 16},
                             {"hidden_size", 8},
                             {"intermediate_size", 8},
                             {"num_hidden_layers", count},
                             {"num_attention_heads", 2},
                             {"num_key_value_heads", 1},
                             {"head_dim", 4},
                             {"max_position_embeddings", 8},
                             {"rms_norm_eps", 1e-5},
                             {"tie_word_embeddings", true}},
                            "small");
}

/// Two training passes of a model whose blocks' inputs wait on the host.
void train_twice(const std::string& recompute) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  Transformer model(kCuda, {.config = model_of(5)});
  model.commit({.recompute = {RecomputePolicy::named(recompute), BlockInputs::host}},
               {{Pass::train, {.tokens = 3, .positions = 3, .targets = 2}}});
  model.initialize_weights(ctx, 1);
  model.weights().zero_grads(ctx);
  const Integers tokens(ctx, {3, 9, 4}), positions(ctx, {0, 1, 2}), starts(ctx, {0, 3}), rows(ctx, {0, 1}),
      targets(ctx, {9, 4});
  DeviceMemory numbers(kCuda, 2 * sizeof(double));
  const double one_and_none[] = {1, 0};
  ctx.stream().copy(numbers.data(), one_and_none, sizeof one_and_none);
  const Tensor both{numbers.data(), DType::f64, {2}, kCuda};
  const TokenBatch batch{.tokens = tokens.view(),
                         .positions = positions.view(),
                         .cu_seqlens = starts.view(),
                         .target_rows = rows.view(),
                         .target_ids = targets.view(),
                         .longest = 3};
  for (int pass = 0; pass < 2; ++pass) {
    model.forward(ctx, batch,
                  {.pass = Pass::train, .loss_sum = accumulate(both.slice(1, 1)), .scale = both.slice(0, 1)});
    model.backward(ctx, batch);
  }
  ctx.synchronize();
}

// Of n groups n - 2 travel: on the way out, into a free buffer, when they are back, and into a buffer free again.
TEST(BlockInputsOnTheHost, NeedEachOfTheirWaits) {
  expect_to_need_each_wait(2 * 4 * (5 - 2), [] { train_twice("block"); });
}
TEST(BlockInputsOnTheHost, NeedEachOfTheirWaitsInGroups) {
  expect_to_need_each_wait(2 * 4 * (3 - 2), [] { train_twice("blocks:2"); });
}

}  // namespace
}  // namespace qtrain::testing
