#pragma once
#include "kernels/attention.h"
#include "kernels/cpu/attention_segments.h"
#include "kernels/cpu/gemm_blocked.h"
#include "kernels/cpu/gemm_pack.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/softcap.h"

/// Attention in blocks of queries and keys, with GEMMs on the tile kernels of gemm, in f32 for f32 and bf16 tensors. A
/// block of scores is kQueries x kKeys; memory does not grow with the square of a segment's length.
namespace qtrain::ops {

template <class T>
void attention_blocked(Ctx& ctx, const Attention& a);
template <class T>
void attention_grad_blocked(Ctx& ctx, const AttentionGrad& a);

namespace blocked {

// Multiples of every TileKernel::mr, so that a tile never crosses a block boundary.
inline constexpr std::int64_t kQueries = 96, kKeys = 144;
inline constexpr std::int64_t kPanel = 16;  // columns per packed panel, a multiple of the lanes of every vector
                                            // extension

inline std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return ceil_div(n, to) * to;
}

/// Hands out 64-byte aligned parts of a worker's workspace; fails when it is exhausted.
class Scratch {
 public:
  explicit Scratch(std::span<std::byte> space) : space_(space) {}
  float* take(std::int64_t floats) {
    const auto bytes = static_cast<std::size_t>(round_up(floats, kPanel)) * sizeof(float);
    check(bytes <= space_.size(), "attention: heads are too wide for the workspace");
    auto* p = reinterpret_cast<float*>(space_.data());
    space_ = space_.subspan(bytes);
    return p;
  }

 private:
  std::span<std::byte> space_;
};

/// The left operand of a GEMM: element (row, k) is data[row * row_step + k * k_step].
struct Left {
  const float* data;
  std::int64_t row_step, k_step;
};
/// The right operand, in panels of `width` columns: element (k, column) of a panel is data[k * k_step + column].
struct Right {
  const float* data;
  std::int64_t k_step, panel_step, width;
};
/// The result; it must have room for rows up to a multiple of TileKernel::mr and columns up to a multiple of kPanel.
struct Result {
  float* data;
  std::int64_t row_step;
};
struct Extent {
  std::int64_t rows, columns, depth;
};
enum class Write : std::uint8_t { store, add };

/// result [rows, columns] = or += left [rows, depth] x right [depth, columns].
inline void multiply(const TileKernel& kernel, const Left& left, const Right& right, const Result& result,
                     const Extent& n, Write write) {
  TileCall call{.groups = n.depth,
                .a_row = left.row_step,
                .a_group = left.k_step,
                .b_group = right.k_step,
                .tile_row = result.row_step,
                .add = write == Write::add};
  for (std::int64_t column = 0; column < n.columns; column += right.width) {
    call.b = right.data + column / right.width * right.panel_step;
    const std::int64_t vectors = ceil_div(std::min(right.width, n.columns - column), kernel.lanes);
    for (std::int64_t row = 0; row < n.rows; row += kernel.mr) {
      call.a = left.data + row * left.row_step;
      call.rows = std::min<std::int64_t>(kernel.mr, n.rows - row);
      call.tile = result.data + row * result.row_step + column;
      tile_function(kernel, call.rows, vectors)(call);
    }
  }
}

/// Rows of one head as f32, with a width that is a multiple of kPanel: in place if they have that form, else a copy.
struct Rows {
  const float* data;
  std::int64_t step;

  Left left() const { return {data, step, 1}; }
  /// The rows as a right operand: k indexes rows, columns are the head's elements.
  Right right(const TileKernel& kernel) const {
    const std::int64_t width = kernel.nr / kPanel * kPanel;
    return {data, step, width, width};
  }
};

/// Elements [count, D] of one head, with rows `step` elements apart.
template <class T>
struct HeadRows {
  const T* data;
  std::int64_t step, count, D;
};

inline bool usable_in_place(std::int64_t D) {
  return D % kPanel == 0;
}

template <class T>
Rows rows_of(const HeadRows<T>& x, float* copy) {
  if constexpr (std::is_same_v<T, float>) {
    if (usable_in_place(x.D)) return {x.data, x.step};
  }
  const std::int64_t width = round_up(x.D, kPanel);
  for (std::int64_t i = 0; i < x.count; ++i) {
    float* to = copy + i * width;
    simd::each<float>(x.D, [&](std::int64_t d, auto lanes) {
      simd::store<float>(to + d, simd::load<float>(x.data + i * x.step + d, lanes), lanes);
    });
    std::fill(to + x.D, to + width, 0.F);
  }
  return {copy, width};
}

/// The transposed rows: panels of kPanel rows, D deep. `to` has room for round_up(count, kPanel) * D + kPanel elements.
template <class T>
Right columns_of(const HeadRows<T>& x, float* to) {
  const Operand from{reinterpret_cast<const std::byte*>(x.data), dtype_of<T>, x.count, x.D, x.step, 1};
  for (std::int64_t i = 0; i < x.count; i += kPanel)
    pack_panel(to + i * x.D, from, {i, std::min(kPanel, x.count - i), 0, x.D}, {static_cast<int>(kPanel), 1});
  return {to, kPanel, kPanel * x.D, kPanel};
}

/// What all tasks of one call share.
struct Heads {
  std::int64_t T;  ///< number of keys
  QueryRange queries;
  std::int64_t Hq, Hkv, D, window;
  float scale, softcap;

  template <class Op>
  static Heads of(const Op& a) {
    return {.T = a.k.shape[0],
            .queries = {a.first_query, a.q.shape[0]},
            .Hq = a.q.shape[1],
            .Hkv = a.k.shape[1],
            .D = a.q.shape[2],
            .window = a.window,
            .scale = static_cast<float>(a.scale),
            .softcap = static_cast<float>(a.softcap)};
  }

  bool capped() const { return softcap > 0; }
  /// Scores are score_scale() * q . k, or if capped score_scale() * tanh(tanh_scale() * q . k).
  float tanh_scale() const { return scale / softcap; }
  float score_scale() const { return capped() ? softcap : scale; }
  std::int64_t group() const { return Hq / Hkv; }
  std::int64_t width() const { return round_up(D, kPanel); }
  /// Offsets of query t in q, y and their gradients, and in lse.
  std::int64_t of_query(std::int64_t t, std::int64_t h) const { return ((t - queries.first) * Hq + h) * D; }
  std::int64_t of_lse(std::int64_t t, std::int64_t h) const { return h * queries.count + t - queries.first; }
  template <class T>
  HeadRows<T> query(const T* x, std::int64_t t, std::int64_t h, std::int64_t count) const {
    return {x + of_query(t, h), Hq * D, count, D};
  }
  template <class T>
  HeadRows<T> key(const T* x, std::int64_t t, std::int64_t g, std::int64_t count) const {
    return {x + (t * Hkv + g) * D, Hkv * D, count, D};
  }
};

/// Tokens [begin, begin + size).
struct Span {
  std::int64_t begin, size;

  std::int64_t end() const { return begin + size; }
};

/// The keys [0, count) of a block that any of the queries [row, row + rows) of a block sees.
inline std::int64_t keys_seen(const Span& queries, const Span& keys, std::int64_t row, std::int64_t rows) {
  const std::int64_t last = queries.begin + std::min(row + rows, queries.size) - 1;
  return std::clamp<std::int64_t>(last - keys.begin + 1, 0, keys.size);
}
/// Whether any query of one block sees any key of the other.
inline bool meet(const Span& queries, const Span& keys, std::int64_t window) {
  if (keys.begin >= queries.end()) return false;
  return window == 0 || queries.begin - (keys.end() - 1) < window;
}
/// The keys [first, last) of a block that query `row` of the other block sees.
struct Visible {
  std::int64_t first, last;

  /// The range widened to whole vectors: [begin, end).
  std::int64_t begin() const { return first / 8 * 8; }
  std::int64_t end() const { return round_up(last, 8); }
};
inline Visible visible(const Span& queries, const Span& keys, std::int64_t row, std::int64_t window) {
  const std::int64_t i = queries.begin + row;
  const std::int64_t last = std::clamp<std::int64_t>(i + 1 - keys.begin, 0, keys.size);
  const std::int64_t first = window > 0 ? std::clamp<std::int64_t>(i - window + 1 - keys.begin, 0, last) : 0;
  return {first, last};
}

}  // namespace blocked
}  // namespace qtrain::ops
