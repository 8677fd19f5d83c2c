// Grouped GEMMs have the same bits as separate GEMMs, and write nothing else.
#include "kernels/grouped_gemm.h"

#include "tests/kernels/each_isa.h"
#include "tests/kernels/expert_cases.h"

namespace qtrain::testing {
namespace {

using ops::Transpose;

struct GroupedCase {
  Choices choices;
  std::int64_t N, K;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  Sink::Mode mode = Sink::Mode::store;
};
std::string describe(const GroupedCase& t) {
  return t.choices.name + " N=" + std::to_string(t.N) + " K=" + std::to_string(t.K) + " " + std::string(name_of(t.a)) +
         " x " + std::string(name_of(t.b)) + " -> " + std::string(name_of(t.c)) +
         (t.mode == Sink::Mode::accumulate ? " accumulate" : "");
}

/// Columns `first` to `first` + `count` of rows [begin, end).
Tensor columns_at(Array& all, std::int64_t begin, std::int64_t end, const std::array<std::int64_t, 2>& columns) {
  Tensor part = all.tensor().slice(begin, end - begin);
  part.data += static_cast<std::size_t>(columns[0]) * size_of(part.dtype);
  part.shape = {end - begin, columns[1]};
  return part;
}
Tensor matrix_at(Array& all, std::int64_t e) {
  return all.tensor().slice(e, 1).reshaped({all.shape()[1], all.shape()[2]});
}

constexpr std::int64_t kBeside = 3, kRowsBehind = 2;

class GroupedGemmIsa : public IsaTest {
 protected:
  /// The rows are column slices of wider matrices, with more rows after those of the last expert.
  static void expect_the_bits_of_single_gemms(const GroupedCase& t, Transpose tb) {
    const std::int64_t E = t.choices.E, R = t.choices.count() + kRowsBehind;
    Array a = irregular(t.a, {R, t.K + kBeside}, 1), offsets = integers(t.choices.offsets());
    Array b = irregular(t.b, tb == Transpose::yes ? Shape{E, t.N, t.K} : Shape{E, t.K, t.N}, 2);
    const Array before = random(t.c, {R, t.N + kBeside}, 3);
    const std::vector<std::int32_t> at = t.choices.offsets();
    for (const MatmulPrecision precision : {MatmulPrecision::storage, MatmulPrecision::bf16}) {
      Array want = before;
      Ctx one({}, precision, 1);
      for (std::int64_t e = 0; e < E; ++e) {
        const std::int64_t first = at[static_cast<std::size_t>(e)], last = at[static_cast<std::size_t>(e) + 1];
        ops::gemm(one, {.c = {columns_at(want, first, last, {1, t.N}), t.mode},
                        .a = columns_at(a, first, last, {2, t.K}),
                        .b = matrix_at(b, e),
                        .transpose_b = tb,
                        .alpha = 0.75,
                        .a_stride = t.K + kBeside,
                        .c_stride = t.N + kBeside});
      }
      for (const int threads : {1, 2, 3}) {
        Array got = before;
        Ctx ctx({}, precision, threads);
        ops::grouped_gemm(ctx, {.c = {columns_at(got, 0, R, {1, t.N}), t.mode},
                                .a = columns_at(a, 0, R, {2, t.K}),
                                .b = b,
                                .offsets = offsets,
                                .transpose_b = tb,
                                .alpha = 0.75,
                                .a_stride = t.K + kBeside,
                                .c_stride = t.N + kBeside});
        ASSERT_EQ(got.bytes(), want.bytes()) << describe(t) << " " << threads << " threads";
      }
    }
  }
  static void expect_the_gradients_of_single_gemms(const GroupedCase& t) {
    const std::int64_t E = t.choices.E, R = t.choices.count();
    Array a = irregular(t.a, {R, t.N + kBeside}, 1), b = irregular(t.b, {R, t.K + kBeside}, 2),
          offsets = integers(t.choices.offsets());
    const Array before = random(t.c, {E, t.N, t.K}, 3);
    const std::vector<std::int32_t> at = t.choices.offsets();
    Array want = before;
    Ctx one({}, MatmulPrecision::storage, 1);
    for (std::int64_t e = 0; e < E; ++e) {
      const std::int64_t first = at[static_cast<std::size_t>(e)], last = at[static_cast<std::size_t>(e) + 1];
      ops::gemm(one, {.c = {matrix_at(want, e), t.mode},
                      .a = columns_at(a, first, last, {2, t.N}),
                      .b = columns_at(b, first, last, {1, t.K}),
                      .transpose_a = Transpose::yes,
                      .alpha = 0.75,
                      .a_stride = t.N + kBeside,
                      .b_stride = t.K + kBeside});
    }
    for (const int threads : {1, 2, 3}) {
      Array got = before;
      Ctx ctx({}, MatmulPrecision::storage, threads);
      ops::grouped_gemm_grad(ctx, {.c = {got.tensor(), t.mode},
                                   .a = columns_at(a, 0, R, {2, t.N}),
                                   .b = columns_at(b, 0, R, {1, t.K}),
                                   .offsets = offsets,
                                   .alpha = 0.75,
                                   .a_stride = t.N + kBeside,
                                   .b_stride = t.K + kBeside});
      ASSERT_EQ(got.bytes(), want.bytes()) << describe(t) << " " << threads << " threads";
    }
  }
};

std::vector<GroupedCase> grouped_cases() {
  std::vector<GroupedCase> cases;
  for (const Choices& n : expert_choices())
    for (const DType c : {DType::f32, DType::bf16}) {
      cases.push_back({.choices = n, .N = 33, .K = 70, .c = c});
      cases.push_back(
          {.choices = n, .N = 18, .K = 40, .a = DType::bf16, .b = DType::bf16, .c = c, .mode = Sink::Mode::accumulate});
    }
  // More rows per expert, and per gradient, than one task takes.
  cases.push_back({.choices = {"long", 600, 2, 1, [](std::int64_t i) { return i % 8 == 0; }}, .N = 20, .K = 12});
  cases.push_back({.choices = {"tall", 30, 5, 1, [](std::int64_t i) { return i % 5; }}, .N = 530, .K = 12});
  return cases;
}

TEST_P(GroupedGemmIsa, HasTheBitsOfSingleGemms) {
  for (const GroupedCase& t : grouped_cases())
    for (const Transpose tb : {Transpose::no, Transpose::yes}) expect_the_bits_of_single_gemms(t, tb);
}
TEST_P(GroupedGemmIsa, HasTheGradientsOfSingleGemms) {
  for (const GroupedCase& t : grouped_cases()) expect_the_gradients_of_single_gemms(t);
}

INSTANTIATE_TEST_SUITE_P(Isa, GroupedGemmIsa, ::testing::ValuesIn(kIsas), isa_name);

TEST(GroupedGemm, RefusesOffsetsBeyondTheRows) {
  Ctx ctx({}, MatmulPrecision::storage, 1);
  Array a = random(DType::f32, {4, 3}, 1), b = random(DType::f32, {2, 3, 5}, 2), c(DType::f32, {4, 5});
  for (const std::vector<std::int32_t>& bad : {std::vector<std::int32_t>{0, 3, 5}, {0, 3, 2}, {-1, 3, 4}}) {
    Array offsets = integers(bad);
    EXPECT_THROW(ops::grouped_gemm(ctx, {.c = store(c), .a = a, .b = b, .offsets = offsets}), Error);
  }
}

}  // namespace
}  // namespace qtrain::testing
