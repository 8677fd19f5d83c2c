// Grouped GEMMs of experts on the CUDA device: types, strides, layouts and addresses, compared with plain loops in f64.
#include "kernels/grouped_gemm.h"

#include "core/graph.h"
#include "kernels/expert_rows.h"
#include "kernels/router.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/expert_cases.h"
#include "tests/kernels/op_run.h"

namespace qtrain::testing {
namespace {

using ops::Transpose;

/// Operands like an adapter's: column slices of wider matrices that start at column `first`, followed by more rows.
struct GroupedProblem {
  Choices choices;
  std::int64_t N, K, first = 8;
  DType a = DType::bf16, b = DType::bf16, c = DType::bf16;
  Transpose tb = Transpose::yes;
  Sink::Mode mode = Sink::Mode::store;
  MatmulPrecision matmul = MatmulPrecision::bf16;

  std::string name() const {
    return choices.name + " N=" + std::to_string(N) + " K=" + std::to_string(K) + " from " + std::to_string(first) +
           " " + std::string(name_of(a)) + " x " + std::string(name_of(b)) + " -> " + std::string(name_of(c)) +
           (tb == Transpose::yes ? " t" : "") + (mode == Sink::Mode::accumulate ? " accumulate" : "");
  }
};

constexpr std::int64_t kWider = 16, kMoreRows = 3;

Tensor columns_of(Array& all, std::int64_t first, std::int64_t count) {
  Tensor part = all.tensor();
  part.data += static_cast<std::size_t>(first) * size_of(part.dtype);
  part.shape = {all.shape()[0], count};
  return part;
}

struct GroupedArrays {
  Array a, b, c;

  GroupedArrays as_doubles() const { return {a.as(DType::f64), b.as(DType::f64), c.as(DType::f64)}; }
};

GroupedArrays forward_arrays(const GroupedProblem& p) {
  const std::int64_t R = p.choices.count() + kMoreRows, E = p.choices.E;
  return {random(p.a, {R, p.K + kWider}, 1),
          random(p.b, p.tb == Transpose::yes ? Shape{E, p.N, p.K} : Shape{E, p.K, p.N}, 2),
          random(p.c, {R, p.N + kWider}, 3)};
}
void multiply(Ctx& ctx, const GroupedProblem& p, GroupedArrays& x) {
  Array offsets = integers(p.choices.offsets());
  ops::grouped_gemm(ctx, {.c = {columns_of(x.c, p.first, p.N), p.mode},
                          .a = columns_of(x.a, p.first, p.K),
                          .b = x.b,
                          .offsets = offsets,
                          .transpose_b = p.tb,
                          .alpha = -0.5,
                          .a_stride = p.K + kWider,
                          .c_stride = p.N + kWider});
  ctx.synchronize();
}
GroupedArrays gradient_arrays(const GroupedProblem& p) {
  const std::int64_t R = p.choices.count() + kMoreRows;
  return {random(p.a, {R, p.N + kWider}, 1), random(p.b, {R, p.K + kWider}, 2),
          random(p.c, {p.choices.E, p.N, p.K}, 3)};
}
void multiply_gradient(Ctx& ctx, const GroupedProblem& p, GroupedArrays& x) {
  Array offsets = integers(p.choices.offsets());
  ops::grouped_gemm_grad(ctx, {.c = {x.c.tensor(), p.mode},
                               .a = columns_of(x.a, p.first, p.N),
                               .b = columns_of(x.b, p.first, p.K),
                               .offsets = offsets,
                               .alpha = -0.5,
                               .a_stride = p.N + kWider,
                               .b_stride = p.K + kWider});
  ctx.synchronize();
}

/// Runs on the CPU in f64 and on the device; memory that nobody writes must keep its bits.
template <class Make, class Run>
void expect_same(const GroupedProblem& p, const Make& make, const Run& run) {
  const GroupedArrays start = make(p);
  GroupedArrays want = start.as_doubles(), got = start;
  Ctx cpu({}, MatmulPrecision::storage, 1);
  run(cpu, p, want);
  const OnDevice device;
  Ctx ctx(kCuda, p.matmul, 1);
  run(ctx, p, got);
  ASSERT_NO_FATAL_FAILURE(expect_close(got.c.values(), want.c.values(), tolerance_of(p.c), p.name()));
  for (std::int64_t i = 0; i < start.c.size(); ++i)
    if (want.c.get(i) == start.c.get(i)) {
      ASSERT_EQ(got.c.get(i), start.c.get(i)) << p.name() << " " << i;
    }
}
void expect_all_ways(GroupedProblem p) {
  for (const Sink::Mode mode : {Sink::Mode::store, Sink::Mode::accumulate}) {
    p.mode = mode;
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      p.tb = tb;
      expect_same(p, forward_arrays, multiply);
    }
    expect_same(p, gradient_arrays, multiply_gradient);
  }
}

std::vector<Choices> few_choices() {
  return {{"one_token", 1, 5, 3, [](std::int64_t i) { return 4 - 2 * i; }},
          {"borders", 200, 4, 1, [](std::int64_t i) { return i < 64    ? 0
                                                             : i < 130 ? 2
                                                                       : 3; }},
          {"first_empty", 40, 6, 2, [](std::int64_t i) { return i % 5 == 0 ? 2 : 5; }}};
}

TEST(CudaGroupedGemm, TakesEveryLayoutAndType) {
  for (const Choices& n : few_choices())
    for (const DType d : {DType::bf16, DType::f16})
      for (const DType c : {d, DType::f32}) expect_all_ways({.choices = n, .N = 24, .K = 40, .a = d, .b = d, .c = c});
}

TEST(CudaGroupedGemm, TakesMoreThanATile) {
  expect_all_ways({.choices = few_choices()[1], .N = 136, .K = 200});
  expect_all_ways({.choices = few_choices()[2], .N = 264, .K = 72, .c = DType::f32});
}

// Adapters in f32 with activations in 16 bits; plain kernels if nothing may be rounded.
TEST(CudaGroupedGemm, TakesOperandsInF32) {
  for (const MatmulPrecision matmul : {MatmulPrecision::bf16, MatmulPrecision::f16, MatmulPrecision::storage})
    for (const DType c : {DType::bf16, DType::f32}) {
      const GroupedProblem p{.choices = few_choices()[2], .N = 16, .K = 48, .c = c, .matmul = matmul};
      for (const std::array<DType, 2>& types :
           {std::array{DType::bf16, DType::f32}, std::array{DType::f32, DType::bf16},
            std::array{DType::f32, DType::f32}}) {
        GroupedProblem mixed = p;
        mixed.a = types[0], mixed.b = types[1];
        expect_all_ways(mixed);
      }
    }
}

TEST(CudaGroupedGemm, RoundsOperandsInF32) {
  const GroupedProblem p{.choices = few_choices()[1], .N = 24, .K = 40, .a = DType::f32, .b = DType::f32};
  GroupedArrays exact = forward_arrays(p);
  exact.a = irregular(DType::f32, exact.a.shape(), 1);
  exact.b = irregular(DType::f32, exact.b.shape(), 2);
  GroupedArrays rounded{exact.a.as(DType::bf16), exact.b.as(DType::bf16), exact.c};
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
  multiply(ctx, p, exact);
  multiply(ctx, p, rounded);
  EXPECT_EQ(exact.c.bytes(), rounded.c.bytes());
}

// With bfloat16 weights and float16 activations, tensor cores are still used: values that are too small for float16
// become zero in them, but nowhere else.
TEST(CudaGroupedGemm, RoundsTheOtherHalfType) {
  for (const bool weights : {true, false}) {
    const GroupedProblem p{.choices = few_choices()[1],
                           .N = 24,
                           .K = 40,
                           .a = weights ? DType::f16 : DType::bf16,
                           .b = weights ? DType::bf16 : DType::f16,
                           .c = DType::f32,
                           .matmul = MatmulPrecision::f16};
    GroupedArrays arrays = forward_arrays(p);
    Array& tiny = weights ? arrays.b : arrays.a;
    for (std::int64_t i = 0; i < tiny.shape().numel(); ++i) tiny.set(i, 1e-9);
    const OnDevice device;
    Ctx ctx(kCuda, MatmulPrecision::f16, 1);
    multiply(ctx, p, arrays);
    const Array c = arrays.c.as(DType::f64);
    for (std::int64_t row = 0; row < p.choices.count(); ++row)
      for (std::int64_t i = 0; i < p.N; ++i) ASSERT_EQ(c.get(row * (p.N + kWider) + p.first + i), 0) << row;
  }
}

// Addresses and widths that cp.async cannot read.
TEST(CudaGroupedGemm, ReadsFromAnyAddress) {
  for (const std::int64_t first : {4, 1}) {
    expect_all_ways({.choices = few_choices()[1], .N = 24, .K = 40, .first = first});
    expect_all_ways({.choices = few_choices()[2], .N = 21, .K = 35, .first = first, .c = DType::f32});
  }
  expect_all_ways({.choices = few_choices()[1], .N = 21, .K = 40});
  expect_all_ways({.choices = few_choices()[1], .N = 22, .K = 40, .c = DType::f32});
}

TEST(CudaGroupedGemm, NeedsNoTensorCores) {
  with_capability(75, [] {
    expect_all_ways({.choices = few_choices()[1], .N = 24, .K = 40, .a = DType::f16, .b = DType::f16, .c = DType::f16});
  });
}

TEST(CudaGroupedGemm, HasTheSameBitsInEveryOrder) {
  const GroupedProblem p{.choices = few_choices()[1], .N = 136, .K = 72};
  const auto bits = [&] {
    const OnDevice device;
    Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
    GroupedArrays forward = forward_arrays(p), gradient = gradient_arrays(p);
    multiply(ctx, p, forward);
    multiply_gradient(ctx, p, gradient);
    return std::pair{forward.c.bytes(), gradient.c.bytes()};
  };
  const auto want = bits();
  for_each_schedule([&] { EXPECT_TRUE(bits() == want); });
}

// The work of a block is captured once, and the kernels read the later choices of tokens.
TEST(CudaExperts, CanBeRecordedAndReplayed) {
  constexpr std::int64_t T = 20, E = 6, k = 2, C = 16, N = 24;
  const OnDevice device;
  Ctx ctx(kCuda, MatmulPrecision::bf16, 1);
  Array x = random(DType::bf16, {T, C}, 1), w = random(DType::bf16, {E, N, C}, 2),
        logits = random(DType::bf16, {T, E}, 3);
  Array experts(DType::i32, {T, k}), weights(DType::f32, {T, k}), probs(DType::f32, {T, E}),
      offsets(DType::i32, {E + 1}), slots(DType::i32, {T * k}), places(DType::i32, {T, k}),
      rows(DType::bf16, {T * k, C}), outputs(DType::bf16, {T * k, N}), y(DType::bf16, {T, N}),
      dw(DType::f32, {E, N, C});
  const auto block = [&] {
    ops::route(ctx, {.experts = experts, .weights = weights, .probs = probs, .logits = logits});
    ops::expert_order(ctx, {.offsets = offsets, .slots = slots, .places = places, .experts = experts});
    ops::dispatch_rows(ctx, {.y = rows, .x = x, .slots = slots, .k = k});
    ops::grouped_gemm(ctx, {.c = store(outputs), .a = rows, .b = w, .offsets = offsets, .transpose_b = Transpose::yes});
    ops::combine_rows(ctx, {.y = store(y), .x = outputs, .places = places, .weights = weights});
    ops::grouped_gemm_grad(ctx, {.c = store(dw), .a = outputs, .b = rows, .offsets = offsets});
  };
  block();
  const Graph graph(ctx.stream(), "experts", block);
  for (const std::uint64_t seed : {4, 5}) {
    const Array other = random(DType::bf16, {T, E}, seed);
    for (std::int64_t i = 0; i < other.size(); ++i) logits.set(i, other.get(i));
    for (Array* a : {&logits, &y, &dw}) a->tensor();
    graph.replay(ctx.stream());
    ctx.synchronize();
    const auto bits = [&] { return std::pair{y.bytes(), dw.bytes()}; };
    const auto replayed = bits();
    block();
    ctx.synchronize();
    EXPECT_TRUE(bits() == replayed) << seed;
  }
}

}  // namespace
}  // namespace qtrain::testing
