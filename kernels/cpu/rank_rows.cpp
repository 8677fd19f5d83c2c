#include "kernels/rank_rows.h"

#include "kernels/cpu/loops.h"

namespace qtrain::ops {
namespace {

using simd::Acc;

template <class T>
void add_rows_as(Ctx& ctx, const AddRows& a) {
  using A = Acc<T>;
  const std::int64_t rows = a.x.shape[0], n = a.y.t.numel();
  const T* x = a.x.as<T>();
  T* y = a.y.t.as<T>();
  for_ranges(ctx, n, kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    simd::each<A>(end - begin, [&](std::int64_t j, auto lanes) {
      simd::Vec<A> sum = simd::load<A>(x + begin + j, lanes);
      for (std::int64_t r = 1; r < rows; ++r) sum += simd::load<A>(x + r * n + begin + j, lanes);
      write<A>(y + begin + j, sum, lanes, a.y.mode);
    });
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const ReverseRows& a) {
  const std::int64_t rows = a.x.shape[0];
  const std::ptrdiff_t bytes = rows > 0 ? static_cast<std::ptrdiff_t>(a.x.bytes()) / rows : 0;
  for_ranges(ctx, bytes, kBlockSize, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t first = 0, last = rows - 1; first < last; ++first, --last)
      std::swap_ranges(a.x.data + first * bytes + begin, a.x.data + first * bytes + end,
                       a.x.data + last * bytes + begin);
  });
}

void run_cpu(Ctx& ctx, const AddRows& a) {
  dispatch_float(a.x.dtype, [&]<class T>() { add_rows_as<T>(ctx, a); });
}

}  // namespace qtrain::ops
