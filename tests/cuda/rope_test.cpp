// Gradients of rope of which only some are wanted: the same bits as if all were.
#include "kernels/rope.h"

#include "tests/cuda/schedules.h"

namespace qtrain::testing {
namespace {

constexpr std::int64_t kRotated = 37, kQueries = 5, kKeys = 2;

/// The gradients of queries and keys, and of their norm's weights.
struct Wanted {
  bool dq = true, dk = true, dwq = true, dwk = true;
};

struct Gradients {
  std::vector<double> dq, dk, dwq, dwk;
};

/// `in_place`: dx is dy.
Gradients gradients_of(Ctx& ctx, std::int64_t width, const Wanted& wanted, bool in_place = false) {
  const DType d = DType::bf16;
  const Shape queries{kRotated, kQueries, width}, keys{kRotated, kKeys, width};
  Array cos = random(DType::f32, {9, width / 2}, 1), sin = random(DType::f32, {9, width / 2}, 2);
  std::vector<std::int32_t> places;
  for (std::int32_t t = 0; t < kRotated; ++t) places.push_back(t * 5 % 9);
  Array positions = integers(places);
  struct Side {
    Array dy, x, weight, inv_rms, dx, dweight;
  };
  const auto side = [&](const Shape& shape, std::uint64_t seed) {
    Side s{random(d, shape, seed),
           random(d, shape, seed + 1),
           random(DType::f32, {width}, seed + 2),
           random(DType::f32, {shape[0], shape[1]}, seed + 3),
           Array(d, shape),
           Array(DType::f32, {width})};
    if (in_place) s.dx = s.dy;
    return s;
  };
  Side q = side(queries, 10), k = side(keys, 20);
  const auto heads = [&](Side& s, bool dx, bool dweight) {
    Array& to = in_place ? s.dy : s.dx;
    return ops::RopeGrad::Heads{.dx = dx ? store(to) : discard(),
                                .dy = s.dy,
                                .x = s.x,
                                .weight = s.weight,
                                .inv_rms = s.inv_rms,
                                .dweight = dweight ? store(s.dweight) : discard()};
  };
  ops::rope_grad(ctx, {.q = heads(q, wanted.dq, wanted.dwq),
                       .k = heads(k, wanted.dk, wanted.dwk),
                       .cos = cos,
                       .sin = sin,
                       .positions = positions});
  ctx.synchronize();
  const auto values = [&](bool has, Array& a) { return has ? a.values() : std::vector<double>{}; };
  return {values(wanted.dq, in_place ? q.dy : q.dx), values(wanted.dk, in_place ? k.dy : k.dx),
          values(wanted.dwq, q.dweight), values(wanted.dwk, k.dweight)};
}

TEST(RopeGradOnCuda, ComputesOnlyWhatIsWanted) {
  const OnDevice device;
  Ctx cuda(kCuda, MatmulPrecision::storage, 1);
  for (const std::int64_t width : {64, 90}) {
    SCOPED_TRACE(width);
    const Gradients all = gradients_of(cuda, width, {});
    for (int bits = 0; bits < 15; ++bits) {
      const Wanted wanted{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
      const Gradients some = gradients_of(cuda, width, wanted);
      if (wanted.dq) {
        EXPECT_EQ(some.dq, all.dq) << bits;
      }
      if (wanted.dk) {
        EXPECT_EQ(some.dk, all.dk) << bits;
      }
      if (wanted.dwq) {
        EXPECT_EQ(some.dwq, all.dwq) << bits;
      }
      if (wanted.dwk) {
        EXPECT_EQ(some.dwk, all.dwk) << bits;
      }
    }
    EXPECT_EQ(gradients_of(cuda, width, {}, true).dq, all.dq);
  }
}

}  // namespace
}  // namespace qtrain::testing
