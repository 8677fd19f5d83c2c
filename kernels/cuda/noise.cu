#include "kernels/noise.h"

#include "core/rng.h"
#include "kernels/cuda/elements.cuh"

namespace qtrain::ops {
namespace {

constexpr unsigned kThreads = 128;

struct NoiseOfRows {
  const std::int64_t* keys;
  const float* magnitudes;
  int width;
  float scale;
};

/// One block per row; one call of the generator yields four elements.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) add_noise_to_rows(T* y, NoiseOfRows rows) {
  const std::int64_t t = blockIdx.x;
  const float magnitude = rows.scale * rows.magnitudes[t];
  if (magnitude == 0) return;
  const auto key = static_cast<std::uint64_t>(rows.keys[t]);
  const Target<T> row{y + t * rows.width};
  for (int c = static_cast<int>(threadIdx.x) * N; c < rows.width; c += static_cast<int>(blockDim.x) * N) {
    const auto words = philox(key, kNoiseStream, static_cast<std::uint64_t>(c / 4));
    float v[N];
    load_floats(v, row.data + c);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (N == 1 && c % 4 != k) continue;
      v[k % N] += rounded_product(magnitude, 2 * uniform(words[static_cast<std::size_t>(k)]) - 1);
    }
    row.template put_pack<N>(c, v);
  }
}

}  // namespace

void run_cuda(Ctx& ctx, const AddNoise& a) {
  const NoiseOfRows rows{.keys = a.keys.as<std::int64_t>(),
                         .magnitudes = a.magnitudes.as<float>(),
                         .width = static_cast<int>(a.y.shape[-1]),
                         .scale = static_cast<float>(a.scale)};
  const Grid grid{static_cast<unsigned>(a.keys.numel()), kThreads};
  dispatch_storage(a.y.dtype, [&]<class T>() {
    T* y = a.y.as<T>();
    if (rows.width % 4 == 0 && aligned<T>(y) == Packs::yes)
      launch(ctx, "add_noise", add_noise_to_rows<T, 4>, grid, y, rows);
    else
      launch(ctx, "add_noise", add_noise_to_rows<T, 1>, grid, y, rows);
  });
}

}  // namespace qtrain::ops
