// State that is kept on the host does not change any update. On a CPU, copies are synchronous: this tests where they
// come from and go to.
#include "optim/state_offload.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/transfer.h"
#include "optim/table.h"

namespace qtrain {
namespace {

constexpr std::int64_t kChunk = 1 << 22;

/// Every byte of parameters and state after two updates of these parameters.
std::string after_updates(Placement placement, const char* optim, const std::vector<std::int64_t>& sizes) {
  Ctx ctx;
  ParamStore store("weights");
  std::vector<Param*> params;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    params.push_back(&store.declare({.name = std::to_string(i), .shape = {sizes[i]}, .update = Update::trained}));
  store.allocate();
  store.initialize(ctx, 0);
  Optimizer optimizer(ctx, make_rule({.name = optim}), params, placement);
  optimizer.allocate(ctx);
  optimizer.state().initialize(ctx, 0);
  DeviceNumbers sums(ctx.device(), 2);
  sums.clear(ctx);
  for (int step = 1; step <= 2; ++step) {
    for (const Param* p : params)
      for (std::int64_t i = 0; i < p->grad.numel(); ++i)
        p->grad.as<float>()[i] = static_cast<float>(i % 97 - 48 + step);
    optimizer.send(ctx, {.learning_rate = 0.1});
    optimizer.update(ctx, sums.all());
    optimizer.set_updates(step);
  }
  std::string bytes;
  for (const ParamStore* s : {&store, &optimizer.state()})
    for (const Param& p : s->all()) bytes.append(reinterpret_cast<const char*>(p.value.data), p.value.bytes());
  return bytes;
}

TEST(StateOffload, GivesTheSameBits) {
  const auto same = [](const char* optim, const std::vector<std::int64_t>& sizes) {
    EXPECT_TRUE(after_updates(Placement::pinned, optim, sizes) == after_updates(Placement::device, optim, sizes))
        << optim << " of " << sizes.size();
  };
  for (const char* optim : {"adamw_torch", "adamw_8bit", "lion_8bit", "sgd", "adafactor"}) {
    same(optim, {7});
    same(optim, {5, 5000, 3});
  }
  for (const char* optim : {"adamw_torch", "adamw_8bit"}) same(optim, {3, kChunk + 5, 9});
}

TEST(StateOffload, TakesTwoOfTheLargestChunks) {
  const auto bytes = [](const char* optim, std::int64_t size) {
    ParamStore store("weights");
    Param* const params[] = {&store.declare({.name = "w", .shape = {size}, .update = Update::trained})};
    return optimizer_memory(*make_rule({.name = optim}), params, {}).chunks;
  };
  EXPECT_EQ(bytes("adamw_torch", 1024), 2u * 2 * 4096);
  EXPECT_EQ(bytes("adamw_torch", 100 * kChunk), 2u * 2 * 4 * kChunk);
  EXPECT_EQ(bytes("adamw_8bit", 100 * kChunk), 2u * 2 * (kChunk + kChunk / 256 * 4));
  EXPECT_EQ(bytes("sgd", 1024), 0u);
}

}  // namespace
}  // namespace qtrain
