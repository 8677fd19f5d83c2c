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

/// Where blocks do not reach from one column into the next.
class Streamer {
 public:
  explicit Streamer(const Blocks4& w) : w_(w), scales_(w), blocks_(w.shape[1] / w.blocksize) {}

  std::int64_t operator()(const CodePanel& panel) const {
    const StreamTile4 run = panel.kernel.stream4[panel.rows - 1];
    const std::int64_t K = w_.shape[1], columns = panel.kernel.streamed;
    if (!run || K == 0 || K % w_.blocksize != 0) return 0;
    float scales[kBlocks * kMaxColumns];
    StreamCall call = panel.call;
    call.b_column = K / 2;
    call.ahead *= call.b_column;
    for (std::int64_t block = 0; block < blocks_; block += kBlocks) {
      const std::int64_t count = std::min(kBlocks, blocks_ - block), k = block * w_.blocksize;
      for (std::int64_t c = 0; c < columns; ++c)
        scales_.read((panel.column + c) * blocks_ + block, count, scales + c * count);
      call.depth = count * w_.blocksize;
      call.a = static_cast<const std::uint32_t*>(panel.call.a) + k / panel.kernel.k_group * call.a_group;
      call.b = w_.codes.data + (panel.column * K + k) / 2;
      run({call, scales, w_.map.as<float>(), count, w_.blocksize});
    }
    return K;
  }

 private:
  static constexpr std::int64_t kBlocks = 16, kMaxColumns = 32;  // of which scales are read at a time
  Blocks4 w_;
  Scales scales_;
  std::int64_t blocks_;
};

}  // namespace

void run_cpu(Ctx& ctx, const Gemm4& g) {
  std::vector<FewRowsTerm> terms;
  terms.push_back({.rows = rows_of({.a = g.a}),
                   .columns = {},
                   .write = few_rows_type(ctx) == DType::bf16 ? writer<Bf16>(g.w) : writer<float>(g.w),
                   .stream = Streamer(g.w)});
  if (g.added.present()) terms.push_back(few_rows_term(g.added));
  gemm_few_rows(ctx, {.c = g.c, .a = {}, .b = {}, .alpha = g.alpha, .bias = g.bias}, terms);
}

}  // namespace qtrain::ops
