// Blocks of keys that wait for each other to add to dq. The harness lets them see late that it is their turn.
#include "emulator/device.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/parted_attention.h"

namespace qtrain::testing {
namespace {

using emulation::Order;

/// The block of keys 0 to 127 has one tile of queries in each head, to which that of the other keys adds before. Each
/// warpgroup computes dq of every second head, and may reach the next one before the other has had its turn.
TEST(AttentionTurns, KeepWarpgroupsInOrder) {
  const AttentionSizes n{.name = "in_turn", .cu = {0, 256}, .Hq = 4, .Hkv = 1, .D = 64, .window = 60, .memory = 4};
  Ctx cpu({}, MatmulPrecision::storage, 1);
  const PartedAttention exact(cpu, n, DType::f64, {128});
  const emulation::Settings before = emulation::settings();
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    emulation::settings().order = order;
    emulation::settings().host_threads = 1;
    const OnDevice device;
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    const PartedAttention parts(ctx, n, DType::bf16, {128});
    ctx.synchronize();
    SCOPED_TRACE(static_cast<int>(order));
    expect_near(parts.dq, exact.dq, 0.02, "dq");  // a unit of bfloat16 for values below 4
  }
  emulation::settings() = before;
}

}  // namespace
}  // namespace qtrain::testing
