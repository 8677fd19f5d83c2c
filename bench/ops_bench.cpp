#include "bench/support.h"
#include "kernels/adamw.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/reduce.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

/// Bytes are those that must move: each input read once, each output written once. SmolLM2-135M's sizes, 1,024 tokens.
namespace qtrain::bench {
namespace {

constexpr std::int64_t kTokens = 1024, kWidth = 576, kHidden = 1536, kVocabulary = 49152;

template <class T>
double bytes_of(std::int64_t elements) {
  return static_cast<double>(elements) * sizeof(T);
}

template <class T>
void copy(benchmark::State& state) {
  Ctx ctx;
  const std::int64_t n = std::int64_t{1} << 25;
  Buffer<T> x(n), y(n);
  for (auto _ : state) ops::copy(ctx, {.y = store(y), .x = x});
  count_bytes(state, 2 * bytes_of<T>(n));
}

template <class T>
void rms_norm(benchmark::State& state) {
  Ctx ctx;
  Buffer<T> x(kTokens, kWidth), y(kTokens, kWidth);
  Buffer weight(kWidth), inv_rms(kTokens);
  for (auto _ : state) ops::rms_norm(ctx, {.y = y, .inv_rms = inv_rms, .x = x, .weight = weight, .eps = 1e-5});
  count_bytes(state, 2 * bytes_of<T>(kTokens * kWidth));
}

template <class T>
void rms_norm_grad(benchmark::State& state) {
  Ctx ctx;
  Buffer<T> x(kTokens, kWidth), dy(kTokens, kWidth), dx(kTokens, kWidth);
  Buffer weight(kWidth), inv_rms(kTokens), dweight(kWidth);
  for (auto _ : state)
    ops::rms_norm_grad(ctx, {.dx = accumulate(dx),
                             .dweight = state.range(0) ? accumulate(dweight) : discard(),
                             .dy = dy,
                             .x = x,
                             .weight = weight,
                             .inv_rms = inv_rms});
  count_bytes(state, 4 * bytes_of<T>(kTokens * kWidth));
}

template <class T>
void rope(benchmark::State& state) {
  Ctx ctx;
  Buffer<T> x(kTokens, 9, 64), y(kTokens, 9, 64);
  Buffer cos(kTokens, 32), sin(kTokens, 32);
  std::vector<std::int32_t> positions(kTokens);
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i);
  for (auto _ : state)
    ops::rope(ctx, {.y = y, .x = x, .cos = cos, .sin = sin, .positions = view_of(std::span(positions), {kTokens})});
  count_bytes(state, 2 * bytes_of<T>(kTokens * kWidth));
}

template <class T>
void swiglu(benchmark::State& state) {
  Ctx ctx;
  const Shape shape{kTokens, kHidden};
  Buffer<T> gate(shape), up(shape), y(shape);
  for (auto _ : state) ops::glu(ctx, {.y = y, .gate = gate, .up = up});
  count_bytes(state, 3 * bytes_of<T>(shape.numel()));
}

template <class T>
void swiglu_grad(benchmark::State& state) {
  Ctx ctx;
  const Shape shape{kTokens, kHidden};
  Buffer<T> gate(shape), up(shape), dy(shape), dgate(shape), dup(shape);
  for (auto _ : state) ops::glu_grad(ctx, {.dgate = store(dgate), .dup = store(dup), .dy = dy, .gate = gate, .up = up});
  count_bytes(state, 5 * bytes_of<T>(shape.numel()));
}

template <class T>
void cross_entropy(benchmark::State& state) {
  Ctx ctx;
  const std::int64_t n = 128;
  Buffer<T> logits(n, kVocabulary);
  Buffer loss(n);
  std::vector<std::int32_t> targets(n, 7);
  double scale = 1;
  for (auto _ : state)
    ops::cross_entropy(ctx, {.logits = logits,
                             .loss = loss,
                             .targets = view_of(std::span(targets), {n}),
                             .gradient = ops::Gradient::in_place,
                             .scale = view_of(std::span(&scale, 1), {1})});
  count_bytes(state, 2 * bytes_of<T>(n * kVocabulary));
}

void adamw(benchmark::State& state) {
  Ctx ctx;
  const std::int64_t n = std::int64_t{1} << 24;
  Buffer param(n), m(n), v(n), grad(n);
  for (std::int64_t i = 0; i < n; ++i) v.data()[i] *= v.data()[i];
  std::vector<double> hyperparameters{1e-9, 0.1, 0.001}, factor{1, 1};
  for (auto _ : state)
    ops::adamw(ctx, {.param = param,
                     .m = m,
                     .v = v,
                     .grad = grad,
                     .hyperparameters = view_of(std::span(hyperparameters), {3}),
                     .factor = view_of(std::span(factor), {2}),
                     .decay = 0.01});
  count_bytes(state, 28.0 * static_cast<double>(n));
}

void sum_squares(benchmark::State& state) {
  Ctx ctx;
  const std::int64_t n = std::int64_t{1} << 24;
  Buffer x(n);
  Buffer<double> out(1);
  for (auto _ : state) ops::sum_squares(ctx, {.out = store(out), .x = x});
  count_bytes(state, 4.0 * static_cast<double>(n));
}

void dropout(benchmark::State& state) {
  Ctx ctx;
  Buffer x(kTokens, kWidth), y(kTokens, kWidth);
  std::int64_t seed = 1;
  for (auto _ : state)
    ops::dropout(ctx, {.y = store(y), .x = x, .seed = view_of(std::span(&seed, 1), {1}), .stream = 3, .p = 0.1});
  count_bytes(state, 8.0 * kTokens * kWidth);
}

void embedding_grad(benchmark::State& state) {
  Ctx ctx;
  Buffer table(kVocabulary, kWidth), dy(kTokens, kWidth);
  std::vector<std::int32_t> tokens(kTokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * i % 4099);
  for (auto _ : state)
    ops::embedding_grad(ctx, {.dtable = accumulate(table), .dy = dy, .tokens = view_of(std::span(tokens), {kTokens})});
  count_bytes(state, 12.0 * kTokens * kWidth);
}

BENCHMARK(copy<float>)->UseRealTime();
BENCHMARK(rms_norm<float>)->UseRealTime();
BENCHMARK(rms_norm<Bf16>)->UseRealTime();
BENCHMARK(rms_norm_grad<float>)->ArgName("weight")->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK(rms_norm_grad<Bf16>)->ArgName("weight")->Arg(0)->Arg(1)->UseRealTime();
BENCHMARK(rope<float>)->UseRealTime();
BENCHMARK(rope<Bf16>)->UseRealTime();
BENCHMARK(swiglu<float>)->UseRealTime();
BENCHMARK(swiglu<Bf16>)->UseRealTime();
BENCHMARK(swiglu_grad<float>)->UseRealTime();
BENCHMARK(swiglu_grad<Bf16>)->UseRealTime();
BENCHMARK(cross_entropy<float>)->UseRealTime();
BENCHMARK(cross_entropy<Bf16>)->UseRealTime();
BENCHMARK(adamw)->UseRealTime();
BENCHMARK(sum_squares)->UseRealTime();
BENCHMARK(dropout)->UseRealTime();
BENCHMARK(embedding_grad)->UseRealTime();

}  // namespace
}  // namespace qtrain::bench
