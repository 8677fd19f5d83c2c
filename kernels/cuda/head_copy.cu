#include "kernels/head_copy.h"

#include "kernels/cuda/elements.cuh"

namespace qtrain::ops {
namespace {

/// Copies `n` elements per token; a token has `y_step` and `x_step` elements in all.
template <class T>
struct HeadCopier {
  Target<T> y;
  const T* x;
  std::int64_t n, y_step, x_step;

  template <int N>
  __device__ void at(std::int64_t i) const {
    const std::int64_t token = i / n, element = i % n;
    float v[N];
    load_floats(v, x + token * x_step + element);
    y.template put_pack<N>(token * y_step + element, v);
  }
};

}  // namespace

void run_cuda(Ctx& ctx, const CopyHeads& a) {
  const std::int64_t D = a.x.shape[2], n = a.count * D, elements = a.x.shape[0] * n;
  if (elements == 0) return;
  dispatch_storage(a.x.dtype, [&]<class T>() {
    HeadCopier<T> body{target_of<T>(a.y), a.x.as<T>() + a.x_first * D, n, a.y.t.shape[1] * D, a.x.shape[1] * D};
    body.y.data += a.y_first * D;
    dispatch_packs<T>(packable<T>(D, body.x, body.y.data),
                      [&]<int N>() { launch_elements<N>(ctx, "copy_heads", elements, body); });
  });
}

}  // namespace qtrain::ops
