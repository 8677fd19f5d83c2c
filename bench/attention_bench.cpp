#include "kernels/attention.h"

#include <cmath>

#include "bench/support.h"

namespace qtrain::bench {
namespace {

/// Segments of equal length with SmolLM2's 9 query and 3 key heads (D = 64), or Qwen3-0.6B's 16 and 8 (D = 128).
struct Batch {
  std::int64_t segments, length, Hq, Hkv, D;

  explicit Batch(const benchmark::State& s)
      : segments(s.range(0)),
        length(s.range(1)),
        Hq(s.range(2) == 64 ? 9 : 16),
        Hkv(s.range(2) == 64 ? 3 : 8),
        D(s.range(2)) {}
  std::int64_t T() const { return segments * length; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(D)); }
  /// Of one product over the visible half of the scores.
  double flops() const { return static_cast<double>(segments * length * (length + 1)) * static_cast<double>(Hq * D); }
  std::vector<std::int32_t> borders() const {
    std::vector<std::int32_t> cu;
    for (std::int64_t i = 0; i <= segments; ++i) cu.push_back(static_cast<std::int32_t>(i * length));
    return cu;
  }
};

void attention_forward(benchmark::State& state) {
  const Batch n(state);
  Ctx ctx;
  Buffer q(n.T(), n.Hq, n.D), k(n.T(), n.Hkv, n.D), v(n.T(), n.Hkv, n.D), y(n.T(), n.Hq, n.D), lse(n.Hq, n.T());
  std::vector<std::int32_t> cu = n.borders();
  for (auto _ : state)
    ops::attention(ctx, {.y = y,
                         .lse = lse,
                         .q = q,
                         .k = k,
                         .v = v,
                         .cu_seqlens = view_of(std::span(cu), {n.segments + 1}),
                         .scale = n.scale()});
  count_flops(state, 2 * n.flops());
}

void attention_backward(benchmark::State& state) {
  const Batch n(state);
  Ctx ctx;
  const Shape queries{n.T(), n.Hq, n.D}, keys{n.T(), n.Hkv, n.D};
  Buffer q(queries), k(keys), v(keys), y(queries), lse(n.Hq, n.T()), dy(queries), dq(queries), dk(keys), dv(keys);
  std::vector<std::int32_t> cu = n.borders();
  const ConstTensor borders = view_of(std::span(cu), {n.segments + 1});
  ops::attention(ctx, {.y = y, .lse = lse, .q = q, .k = k, .v = v, .cu_seqlens = borders, .scale = n.scale()});
  for (auto _ : state)
    ops::attention_grad(ctx, {.dq = store(dq),
                              .dk = store(dk),
                              .dv = store(dv),
                              .dy = dy,
                              .y = y,
                              .q = q,
                              .k = k,
                              .v = v,
                              .lse = lse,
                              .cu_seqlens = borders,
                              .scale = n.scale()});
  count_flops(state, 5 * n.flops());
}

void batches(benchmark::internal::Benchmark* b) {
  b->ArgNames({"segments", "length", "D"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const std::vector<std::int64_t>& args :
       {std::vector<std::int64_t>{17, 60, 64}, {8, 128, 64}, {4, 500, 64}, {1, 2048, 64}, {1, 2048, 128}})
    b->Args(args);
}
BENCHMARK(attention_forward)->Apply(batches);
BENCHMARK(attention_backward)->Apply(batches);

}  // namespace
}  // namespace qtrain::bench
