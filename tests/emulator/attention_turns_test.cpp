// Blocks of keys that wait for each other to add to dq. The harness lets them see late that it is their turn.
#include "emulator/device.h"
#include "tests/cuda/schedules.h"
#include "tests/emulator/attention_order.h"
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

// Tiles of 128 keys and, for the queries that see them, of 64.
TEST(AttentionTurns, BeginWithTheKeysThatMostQueriesSee) {
  struct Ordered {
    std::vector<std::int32_t> boundaries;
    int window;
    std::vector<int> order;
  };
  const Ordered cases[] = {
      {{0, 384}, 0, {0, 128, 256}},
      {{0, 256, 512}, 0, {0, 256, 128, 384}},
      {{0, 128, 384}, 0, {128, 0, 256}},
      // Each document begins with a new tile.
      {{0, 200, 900}, 0, {200, 328, 456, 584, 0, 712, 128, 840}},
      {{0, 200, 256, 640}, 0, {256, 0, 384, 128, 512, 200}},
      // Documents without tokens and tokens of no document, which come last.
      {{0, 200, 256, 256, 256}, 0, {0, 128, 200}},
      // Behind the window, all tiles are equally long, but they add to the same dq.
      {{0, 512}, 60, {0, 128, 256, 384}},
      // Documents of few tokens share tiles. The first one has keys of all, so it comes before the others, which add to
      // the same dq of the last document.
      {{0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 72, 640}, 0, {0, 128, 256, 384, 512}},
      {{0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 128, 640}, 0, {128, 256, 384, 0, 512}},
  };
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const Ordered& c : cases) EXPECT_EQ(order_of_tiles(ctx, c.boundaries, c.window), c.order);
}

}  // namespace
}  // namespace qtrain::testing
