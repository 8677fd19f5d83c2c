#pragma once
#include <benchmark/benchmark.h>

#include <concepts>
#include <span>
#include <vector>

#include "core/context.h"
#include "core/rng.h"

namespace qtrain::bench {

/// Host memory filled with uniform values in [-1, 1): never zeros, which some units multiply faster.
template <class T = float>
class Buffer {
 public:
  explicit Buffer(Shape shape) : values_(static_cast<std::size_t>(shape.numel())), shape_(shape) {
    std::uint32_t state = 1;
    for (T& v : values_) {
      state = state * 1664525u + 1013904223u;
      v = T(2 * uniform(state) - 1);
    }
  }
  explicit Buffer(std::integral auto... extents) : Buffer(Shape(extents...)) {}
  operator Tensor() { return view_of(std::span<T>(values_), shape_); }       // NOLINT: as an op's argument
  operator ConstTensor() { return view_of(std::span<T>(values_), shape_); }  // NOLINT
  T* data() { return values_.data(); }

 private:
  std::vector<T> values_;
  Shape shape_;
};

inline void count_flops(benchmark::State& state, double per_iteration) {
  state.counters["FLOP/s"] =
      benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}
inline void count_bytes(benchmark::State& state, double per_iteration) {
  state.SetBytesProcessed(static_cast<std::int64_t>(per_iteration * static_cast<double>(state.iterations())));
}

/// The products of a training step with a weight [N, K] and M tokens.
enum Orientation : std::int64_t { kForward, kInputGradient, kWeightGradient };  // y = x W^T, dx = dy W, dW = dy^T x

/// M, N, K, orientation: the linear layers of SmolLM2-135M, and its head.
inline void training_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"M", "N", "K", "way"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const std::int64_t M : {64, 512, 1024, 2048})
    for (const auto& [N, K] : {std::pair{576, 576}, {192, 576}, {1536, 576}, {576, 1536}})
      for (const std::int64_t way : {kForward, kInputGradient, kWeightGradient}) b->Args({M, N, K, way});
  for (const std::int64_t way : {kForward, kInputGradient, kWeightGradient}) b->Args({512, 49152, 576, way});
}

}  // namespace qtrain::bench
