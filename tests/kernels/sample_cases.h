#pragma once
#include "kernels/sample.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {

inline std::vector<ops::SampleRule> sample_rules() {
  return {{},
          {.temperature = 0},
          {.temperature = 0.6},
          {.temperature = 1.7, .seed = 7},
          {.top_k = 1},
          {.top_k = 5},
          {.top_p = 0},
          {.top_p = 0.9},
          {.min_p = 0.2},
          {.temperature = 0, .repetition_penalty = 1.5},
          {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.01, .repetition_penalty = 1.1}};
}

/// Rows of logits, each with some seen tokens.
struct SampleRows {
  Array logits;
  std::vector<std::int32_t> seen, ends;

  /// Every other row has many equal logits.
  SampleRows(std::int64_t rows, std::int64_t width) : logits(random(DType::f32, {rows, width}, 5)) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = r * width; i < (r + 1) * width; ++i)
        logits.set(i, 3 * (r % 2 == 0 ? logits.get(i) : std::round(2 * logits.get(i)) / 2));
      for (std::int64_t id = r; id < width; id += 2 + r) seen.push_back(static_cast<std::int32_t>(id));
      ends.push_back(static_cast<std::int32_t>(seen.size()));
    }
    seen.push_back(0);  // belongs to no row
  }

  /// The tokens that the op samples; row r is token r % 3 of sequence r / 3.
  std::vector<std::int32_t> drawn(Ctx& ctx, const ops::SampleRule& rule, std::int64_t candidates = 0) const {
    const std::int64_t rows = logits.shape()[0];
    Array own = logits, tokens(DType::i32, {rows}), ids = integers(seen), last = integers(ends);
    Array place(DType::i64, {rows, 2});
    for (std::int64_t r = 0; r < rows; ++r) {
      place.host<std::int64_t>()[2 * r] = r / 3;
      place.host<std::int64_t>()[2 * r + 1] = r % 3;
    }
    ops::sample(ctx, {.tokens = tokens,
                      .logits = own,
                      .place = place,
                      .seen = ids,
                      .ends = last,
                      .rule = rule,
                      .candidates = candidates});
    ctx.synchronize();
    const std::int32_t* first = tokens.host<std::int32_t>();
    return {first, first + rows};
  }
};

}  // namespace qtrain::testing
