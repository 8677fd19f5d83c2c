// State that waits on the host changes no update. On the processor the copies are made at once: what is tested is where
// they come from and go to.
#include "optim/state_offload.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/transfer.h"
#include "optim/optimizer.h"

namespace qtrain {
namespace {

constexpr std::int64_t kPiece = 1 << 22;

/// Every byte of parameters and state after two updates of these parameters.
std::string after_updates(Placement placement, const std::vector<std::int64_t>& sizes) {
  Ctx ctx;
  ParamStore store("weights");
  std::vector<Param*> params;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    params.push_back(&store.declare({.name = std::to_string(i), .shape = {sizes[i]}, .update = Update::trained}));
  store.allocate();
  store.initialise(ctx, 0);
  const auto optimizer = make_adamw(ctx, params, {.state = placement});
  optimizer->allocate();
  optimizer->state().initialise(ctx, 0);
  DeviceNumbers sums(ctx.device(), 2);
  sums.clear(ctx);
  for (int step = 1; step <= 2; ++step) {
    for (const Param* p : params)
      for (std::int64_t i = 0; i < p->grad.numel(); ++i)
        p->grad.as<float>()[i] = static_cast<float>(i % 97 - 48 + step);
    optimizer->send(ctx, {.learning_rate = 0.1});
    optimizer->update(ctx, sums.all());
    optimizer->set_updates(step);
  }
  std::string bytes;
  for (const ParamStore* s : {&store, &optimizer->state()})
    for (const Param& p : s->all()) bytes.append(reinterpret_cast<const char*>(p.value.data), p.value.bytes());
  return bytes;
}

TEST(StateOffload, GivesTheSameBits) {
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{7}, {5, 64, 3}, {3, kPiece + 5, 9}})
    EXPECT_TRUE(after_updates(Placement::pinned, sizes) == after_updates(Placement::device, sizes)) << sizes.size();
}

TEST(StateOffload, TakesTwoPiecesOfBothMoments) {
  const auto bytes = [](std::int64_t size) {
    ParamStore state("optimizer");
    for (const char* name : {"exp_avg.w", "exp_avg_sq.w"}) state.declare({.name = name, .shape = {size}});
    return StateOffload::bytes(state);
  };
  EXPECT_EQ(bytes(1024), 2u * 2 * 4096);
  EXPECT_EQ(bytes(100 * kPiece), 2u * 2 * 4 * kPiece);
}

}  // namespace
}  // namespace qtrain
