#include <algorithm>
#include <cmath>

#include "kernels/cpu/gemm_few_rows.h"
#include "kernels/cpu/quantize8.h"
#include "kernels/quantize.h"

namespace qtrain::ops {
namespace {

template <class T>
WriteColumns writer(const GemmRows8& g) {
  return [codes = g.codes.as<std::int8_t>(), scale = g.scale.as<float>(), K = g.codes.shape[1],
          expand = RowExpansion8<T>()](void* to, const PanelRange& range) {
    T* y = static_cast<T*>(to);
    for (std::int64_t n = range.lane; n < range.lane + range.count; ++n, y += kWrittenDepth)
      expand({codes + n * K + range.k, scale[n], range.depth}, y);
  };
}

bool streams(float scale) {
  return scale == 0 || (std::abs(scale) >= kLeastStreamedScale && std::isfinite(scale));
}

/// Streams panels whose scales are in the range that the vector extension supports.
StreamColumns streamer(const GemmRows8& g) {
  return
      [codes = g.codes.as<std::int8_t>(), scale = g.scale.as<float>(), K = g.codes.shape[1]](const CodePanel& panel) {
        const StreamTile8 run = panel.kernel.stream8[panel.rows - 1];
        const float* scales = scale + panel.column;
        const std::int64_t depth = K / kStreamedDepth * kStreamedDepth;
        if (!run || depth == 0 || !std::all_of(scales, scales + panel.kernel.streamed, streams)) return std::int64_t{0};
        StreamCall call = panel.call;
        call.depth = depth;
        call.b = reinterpret_cast<const std::byte*>(codes + panel.column * K);
        call.b_column = K;
        call.ahead *= K;
        run({call, scales});
        return depth;
      };
}

}  // namespace

void run_cpu(Ctx& ctx, const GemmRows8& g) {
  std::vector<FewRowsTerm> terms;
  terms.push_back({.rows = rows_of({.a = g.a}),
                   .columns = {},
                   .write = few_rows_type(ctx) == DType::bf16 ? writer<Bf16>(g) : writer<float>(g),
                   .stream = streamer(g)});
  if (g.added.present()) terms.push_back(few_rows_term(g.added));
  gemm_few_rows(ctx, {.c = g.c, .a = {}, .b = {}, .alpha = g.alpha, .bias = g.bias}, terms);
}

}  // namespace qtrain::ops
