#include "kernels/adapter_columns.h"

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

template <class T, class B>
void put_row(T* y, const AdapterColumns& a, const B* b, std::int64_t rank, std::int64_t first) {
  for (std::int64_t c = 0; c < a.ranks(); ++c) {
    const bool own = c >= first && c < first + rank;
    y[a.inputs() + c] = own ? static_cast<T>(b[c - first]) : T{};
  }
}

template <class T>
void put_layer(const AdapterColumns& a, const AdapterColumns::Layer& l, T* y, std::int64_t first) {
  const std::int64_t K = a.inputs(), r = l.rank();
  for (std::int64_t i = 0; i < l.rows; ++i, y += a.y_stride) {
    if (l.w) std::copy_n(l.w.as<T>() + i * K, K, y);
    if (!l.b || l.b.dtype == a.y.dtype)
      put_row(y, a, l.b ? l.b.as<T>() + i * r : nullptr, r, first);
    else
      put_row(y, a, l.b.as<float>() + i * r, r, first);
  }
}

}  // namespace

void run_cpu(Ctx&, const AdapterColumns& a) {
  dispatch_float(a.y.dtype, [&]<class T>() {
    T* y = a.y.as<T>();
    std::int64_t first = 0;
    for (const AdapterColumns::Layer& l : a.layers) {
      put_layer(a, l, y, first);
      y += l.rows * a.y_stride;
      first += l.rank();
    }
  });
}

}  // namespace qtrain::ops
