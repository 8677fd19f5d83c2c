#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/gemm_few_rows.h"
#include "kernels/cpu/quantize4.h"

namespace qtrain::ops {
namespace {

template <class T>
WriteColumns writer(const Blocks4& w) {
  return [weights = Expansion<T>(w), K = w.shape[1]](void* to, const PanelRange& range) {
    T* y = static_cast<T*>(to);
    for (std::int64_t n = range.lane; n < range.lane + range.count; ++n, y += kWrittenDepth)
      weights.range(n * K + range.k, n * K + range.k + range.depth, y);
  };
}

/// For matrices whose blocks do not cross columns and whose values are never denormal.
class Streamer {
 public:
  explicit Streamer(const Blocks4& w)
      : w_(w), scales_(w), map_(w.map.as<float>()), blocks_(w.shape[1] / w.blocksize), least_(least_scale(map_)) {}

  std::int64_t operator()(const CodePanel& panel) const {
    const StreamTile4 run = panel.kernel.stream4[panel.rows - 1];
    const std::int64_t K = w_.shape[1], columns = panel.kernel.streamed;
    if (!run || K % w_.blocksize != 0) return 0;
    float memory[kScales];
    const std::int64_t most = scales_.plain() ? blocks_ : kScales / columns;
    scales_.fetch((panel.column + panel.call.ahead) * blocks_, columns * blocks_);
    StreamCall call = panel.call;
    call.b_column = K / 2;
    call.ahead *= call.b_column;
    for (std::int64_t block = 0; block < blocks_; block += most) {
      const std::int64_t count = std::min(most, blocks_ - block), k = block * w_.blocksize;
      const float* scales = read({panel.column, columns, block, count}, memory);
      if (!all_stream(scales, columns * count)) return k;
      call.depth = count * w_.blocksize;
      call.a = static_cast<const std::uint32_t*>(panel.call.a) + k / panel.kernel.k_group * call.a_group;
      call.b = w_.codes.data + (panel.column * K + k) / 2;
      run({call, scales, map_, count, w_.blocksize});
    }
    return K;
  }

 private:
  static constexpr std::int64_t kScales = 1024;  // read at a time

  static float least_scale(const float* map) {
    float least = std::numeric_limits<float>::infinity();
    for (int i = 0; i < 16; ++i)
      if (map[i] != 0) least = std::min(least, std::abs(map[i]));
    return 2 * kLeastNormal / least;
  }
  /// An order by magnitude in which zero is the largest.
  static std::uint32_t order(float scale) { return 2 * std::bit_cast<std::uint32_t>(scale) - 1; }
  bool all_stream(const float* scales, std::int64_t count) const {
    std::uint32_t smallest = order(least_);
    for (std::int64_t i = 0; i < count; ++i) smallest = std::min(smallest, order(scales[i]));
    return smallest == order(least_);
  }
  /// Blocks [block, block + count) of some columns.
  struct Range {
    std::int64_t column, columns, block, count;
  };
  const float* read(const Range& r, float* memory) const {
    if (scales_.plain()) return scales_.plain() + r.column * blocks_;
    if (r.count == blocks_) {
      scales_.read(r.column * blocks_, r.columns * blocks_, memory);
      return memory;
    }
    for (std::int64_t c = 0; c < r.columns; ++c)
      scales_.read((r.column + c) * blocks_ + r.block, r.count, memory + c * r.count);
    return memory;
  }

  Blocks4 w_;
  Scales scales_;
  const float* map_;
  std::int64_t blocks_;
  float least_;
};

}  // namespace

void run_cpu(Ctx& ctx, const Gemm4& g) {
  std::vector<FewRowsTerm> terms;
  terms.push_back({.rows = rows_of({.a = g.a}),
                   .columns = {},
                   .write = few_rows_type(ctx) == DType::bf16 ? writer<Bf16>(g.w) : writer<float>(g.w),
                   .stream = Streamer(g.w)});
  if (g.added.present()) terms.push_back(few_rows_term(g.added));
  gemm_few_rows(ctx, {.c = g.c, .a = {}, .b = {}, .alpha = g.alpha, .bias = g.bias, .c_stride = g.c_stride}, terms);
}

}  // namespace qtrain::ops
