#include "kernels/adapter_columns.h"

#include <limits>
#include <numeric>

#include "kernels/cuda/elements.cuh"

namespace qtrain::ops {
namespace {

template <class T, class B>
struct ColumnWriter {
  struct Layer {
    const T* w;
    const B* b;
    int end, first, rank;  // the row after its last; its columns after K
  };
  T* y;
  Layer layers[AdapterColumns::kMaxLayers];
  int inputs, begin;
  std::uint32_t width;  // writes columns [begin, begin + width)
  int step;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const auto n = static_cast<std::uint32_t>(i);
    const int row = static_cast<int>(n / width), column = begin + static_cast<int>(n % width);
    int start = 0;
    Layer l = layers[0];
#pragma unroll
    for (std::size_t k = 1; k < AdapterColumns::kMaxLayers; ++k)
      if (row >= l.end) start = l.end, l = layers[k];
    const int own = row - start;
    T* const to = y + std::int64_t{row} * step + column;
    if (column < inputs) return store_pack<N>(to, load_pack<N>(l.w + std::int64_t{own} * inputs + column));
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const int c = column + j - inputs - l.first;
      out.v[j] = from_float<T>(c >= 0 && c < l.rank ? to_float(l.b[std::int64_t{own} * l.rank + c]) : 0.0f);
    }
    store_pack<N>(to, out);
  }
};

template <class T, class B>
void write_columns(Ctx& ctx, const AdapterColumns& a) {
  const auto K = static_cast<int>(a.inputs()), step = static_cast<int>(a.y_stride), begin = a.has_weights() ? 0 : K;
  ColumnWriter<T, B> body{.y = a.y.as<T>(),
                          .layers = {},
                          .inputs = K,
                          .begin = begin,
                          .width = static_cast<std::uint32_t>(step - begin),
                          .step = step};
  int end = 0, first = 0;
  const T* aligned = body.y;  // the first weight that is not aligned, if any
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const AdapterColumns::Layer& l = a.layers[i];
    end += static_cast<int>(l.rows);
    body.layers[i] = {l.w ? l.w.as<T>() : nullptr, l.b ? l.b.as<B>() : nullptr, end, first, static_cast<int>(l.rank())};
    first += static_cast<int>(l.rank());
    if (reinterpret_cast<std::uintptr_t>(body.layers[i].w) % 16 != 0) aligned = body.layers[i].w;
  }
  const std::int64_t n = a.y.shape[0] * std::int64_t{body.width};
  check(n <= std::numeric_limits<std::uint32_t>::max(), "adapter_columns: too many elements");
  dispatch_packs<T>(packable<T>(std::gcd(K, step), body.y, aligned),
                    [&]<int N>() { launch_elements<N>(ctx, "adapter_columns", n, body); });
}

}  // namespace

// The columns after K + R in a row of y are written, too, as zeros.
void run_cuda(Ctx& ctx, const AdapterColumns& a) {
  bool wide = false;
  for (const AdapterColumns::Layer& l : a.layers) wide = wide || (l.b && l.b.dtype != a.y.dtype);
  for (const AdapterColumns::Layer& l : a.layers)
    check(!wide || !l.b || l.b.dtype == DType::f32, "adapter_columns: all B have one type");
  dispatch_storage(a.y.dtype, [&]<class T>() {
    if (wide)
      write_columns<T, float>(ctx, a);
    else
      write_columns<T, T>(ctx, a);
  });
}

}  // namespace qtrain::ops
