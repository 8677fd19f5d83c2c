#pragma once
#include "kernels/head_copy.h"
#include "tests/kernels/support.h"

/// What both backends must do with some heads of larger tensors: with and without packs, in both directions.
namespace qtrain::testing {

inline void copies_heads(Ctx& ctx, DType d) {
  for (const std::int64_t D : {5, 64})
    for (const Sink::Mode mode : {Sink::Mode::store, Sink::Mode::accumulate})
      for (const auto& [y_heads, y_first, x_heads, x_first] :
           {std::array<std::int64_t, 4>{2, 0, 7, 3}, {7, 5, 2, 0}, {3, 1, 3, 0}}) {
        const std::int64_t tokens = 301, count = 2;
        const Array x = random(d, {tokens, x_heads, D}, 1), before = random(d, {tokens, y_heads, D}, 2);
        Array y = before, in = x;
        ops::copy_heads(ctx, {.y = {y, mode}, .x = in, .y_first = y_first, .x_first = x_first, .count = count});
        ctx.synchronize();
        Array want = before;
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t h = 0; h < count; ++h)
            for (std::int64_t i = 0; i < D; ++i) {
              const std::int64_t at = (t * y_heads + y_first + h) * D + i;
              const double from = x.get((t * x_heads + x_first + h) * D + i);
              want.set(
                  at, mode == Sink::Mode::store ? from : static_cast<float>(before.get(at)) + static_cast<float>(from));
            }
        if (d == DType::f64 && mode == Sink::Mode::accumulate) continue;  // added in f32 here
        ASSERT_EQ(y.bytes(), want.bytes()) << name_of(d) << " " << y_heads << " of " << D;
      }
}

}  // namespace qtrain::testing
