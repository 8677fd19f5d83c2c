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

// No block clears the counters of such a part, so the kernels that need none run.
TEST(AttentionTurns, APartWithoutQueriesAddsNothing) {
  const AttentionSizes n{.name = "no_queries", .cu = {0, 100, 256}, .Hq = 2, .Hkv = 1, .D = 64, .memory = 2};
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  const PartedAttention whole(ctx, n, DType::bf16, {0}), parts(ctx, n, DType::bf16, {0, n.T()});
  ctx.synchronize();
  for (const auto member : {&PartedAttention::dq, &PartedAttention::dk, &PartedAttention::dv})
    EXPECT_TRUE((parts.*member).bytes() == (whole.*member).bytes());
}

// Tiles of 128 keys and, for the queries that see them, of 64. Numbers without a tile come last.
TEST(AttentionTurns, BeginWithTheKeysThatMostQueriesSee) {
  struct Ordered {
    Documents documents;
    std::vector<int> order;
    std::size_t numbers;
  };
  const Ordered cases[] = {
      {{{0, 384}}, {0, 128, 256}, 4},
      {{{0, 256, 512}}, {0, 256, 128, 384}, 6},
      {{{0, 128, 384}}, {128, 0, 256}, 5},
      // Each document begins with a new tile.
      {{{0, 200, 900}}, {200, 328, 456, 584, 0, 712, 128, 840}, 10},
      {{{0, 200, 256, 640}}, {256, 0, 384, 128, 512, 200}, 8},
      // Documents without tokens.
      {{{0, 200, 256, 256, 256}}, {0, 128, 200}, 6},
      // Tokens of no document come after all others. Number 3 of the first two has no tile.
      {{.boundaries = {0, 200, 256}, .padding = 264}, {0, 128, 200, 256, 384, 512}, 7},
      {{.boundaries = {0, 200, 256, 256, 256}, .padding = 264}, {0, 128, 200, 256, 384, 512}, 9},
      {{.boundaries = {0, 2, 3, 4}, .padding = 136}, {0, 128}, 4},
      // Behind the window, all tiles are equally long, but they add to the same dq.
      {{.boundaries = {0, 512}, .window = 60}, {0, 128, 256, 384}, 5},
      // Documents of few tokens share tiles. The first one has keys of all, so it comes before the others, which add to
      // the same dq of the last document.
      {{{0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 72, 640}}, {0, 128, 256, 384, 512}, 15},
      {{{0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 128, 640}}, {128, 256, 384, 0, 512}, 15},
  };
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const Ordered& c : cases) {
    std::vector<int> order = c.order;
    order.resize(c.numbers, -1);
    EXPECT_EQ(order_of_tiles(ctx, c.documents), order);
  }
}

TEST(AttentionTiles, HaveEveryQueryOnceAmongTheNumbersInUse) {
  Ctx ctx(kCuda, MatmulPrecision::storage, 1);
  for (const Documents& documents :
       {Documents{{0, 640}}, Documents{{0, 64, 128, 192}}, Documents{{0, 0, 200, 256, 640}},
        Documents{.boundaries = {0, 200, 256, 256, 256}, .padding = 100}, Documents{{0, 1, 2, 3, 250}}})
    for (const Tokens queries : {Tokens{0, 192}, {0, 256}, {63, 64}, {100, 250}, {200, 256}, {190, 201}}) {
      const int tokens = documents.boundaries.back() + documents.padding;
      if (queries.end > tokens) continue;
      const NumberedTiles all = tiles_of(ctx, documents, queries);
      SCOPED_TRACE(std::to_string(documents.boundaries[1]) + ": " + std::to_string(queries.begin) + " to " +
                   std::to_string(queries.end));
      int next = queries.begin, first = -1, last = -1;
      for (int t = 0; t < static_cast<int>(all.tiles.size()); ++t) {
        const Tokens tile = all.tiles[static_cast<std::size_t>(t)];
        if (tile.begin >= tile.end) continue;
        EXPECT_EQ(tile.begin, next) << t;
        next = tile.end, last = t;
        if (first < 0) first = t;
      }
      EXPECT_EQ(next, queries.end);
      EXPECT_EQ(all.begin, first);
      EXPECT_EQ(all.end, last + 1);
    }
}

}  // namespace
}  // namespace qtrain::testing
