#include "kernels/noise.h"

#include "kernels/cpu/loops.h"
#include "kernels/cpu/philox_lanes.h"

namespace qtrain::ops {
namespace {

using simd::Acc;

template <class T>
void add_noise_as(Ctx& ctx, const AddNoise& a) {
  using A = Acc<T>;
  T* y = a.y.as<T>();
  const std::int64_t C = a.y.shape[-1];
  const auto* keys = a.keys.as<std::int64_t>();
  const auto* magnitudes = a.magnitudes.as<float>();
  const auto scale = static_cast<float>(a.scale);
  for_rows(ctx, a.keys.numel(), C, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t words[simd::kPhiloxWords];
    float noise[simd::kPhiloxWords];
    for (std::int64_t t = begin; t < end; ++t) {
      const float magnitude = scale * magnitudes[t];
      if (magnitude == 0) continue;
      for (std::int64_t c = 0; c < C; c += simd::kPhiloxWords) {
        simd::philox_lanes(static_cast<std::uint64_t>(keys[t]), kNoiseStream, static_cast<std::uint64_t>(c / 4), words);
        for (int i = 0; i < simd::kPhiloxWords; ++i)
          noise[i] = magnitude * (static_cast<float>(static_cast<std::int32_t>(words[i] >> 8)) * 0x1p-23F - 1.F);
        simd::each<A>(std::min<std::int64_t>(simd::kPhiloxWords, C - c), [&](std::int64_t j, auto lanes) {
          T* at = y + t * C + c + j;
          simd::store<A>(at, simd::load<A>(at, lanes) + simd::load<A>(noise + j, lanes), lanes);
        });
      }
    }
  });
}

}  // namespace

void run_cpu(Ctx& ctx, const AddNoise& a) {
  dispatch_float(a.y.dtype, [&]<class T>() { add_noise_as<T>(ctx, a); });
}

}  // namespace qtrain::ops
