#pragma once
#include "kernels/rank_rows.h"
#include "tests/kernels/support.h"

/// What both backends must do with the rows of ranks: even and odd numbers of rows, with and without packs.
namespace qtrain::testing {

inline void reverses_rows(Ctx& ctx, DType d) {
  for (const std::int64_t rows : {1, 2, 3, 4})
    for (const std::int64_t n : {1, 7, 64, 20000}) {
      const Array before = random(d, {rows, n}, 1);
      Array x = before;
      ops::reverse_rows(ctx, {.x = x});
      ctx.synchronize();
      for (std::int64_t i = 0; i < rows * n; ++i)
        ASSERT_EQ(x.get(i), before.get((rows - 1 - i / n) * n + i % n)) << name_of(d) << " " << rows << " x " << n;
    }
}

/// The sum in order, in f32 or f64; the previous value is added last.
template <class Sum>
void adds_rows_as(Ctx& ctx, DType d) {
  for (const std::int64_t rows : {1, 2, 5})
    for (const std::int64_t n : {1, 7, 64, 20000})
      for (const Sink::Mode mode : {Sink::Mode::store, Sink::Mode::accumulate}) {
        const Array x = random(d, {rows, n}, 1), before = random(d, {n}, 2);
        Array y = before, in = x, want = before;
        ops::add_rows(ctx, {.y = {y, mode}, .x = in});
        ctx.synchronize();
        for (std::int64_t i = 0; i < n; ++i) {
          Sum sum = static_cast<Sum>(x.get(i));
          for (std::int64_t r = 1; r < rows; ++r) sum += static_cast<Sum>(x.get(r * n + i));
          if (mode == Sink::Mode::accumulate) sum += static_cast<Sum>(before.get(i));
          want.set(i, static_cast<double>(sum));
        }
        ASSERT_EQ(y.bytes(), want.bytes()) << name_of(d) << " " << rows << " x " << n;
      }
}
inline void adds_rows(Ctx& ctx, DType d) {
  d == DType::f64 ? adds_rows_as<double>(ctx, d) : adds_rows_as<float>(ctx, d);
}

}  // namespace qtrain::testing
