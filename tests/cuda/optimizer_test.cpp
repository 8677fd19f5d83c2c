// Optimizer updates on the CUDA device compared with those of the CPU, in every order.
#include <cstring>

#include "kernels/adafactor.h"
#include "kernels/adamw.h"
#include "kernels/dynamic_map.h"
#include "kernels/lion.h"
#include "kernels/muon.h"
#include "kernels/sgd.h"
#include "tests/cuda/schedules.h"
#include "tests/kernels/op_cases.h"

namespace qtrain::testing {
namespace {

/// Everything that an update reads and writes. `one` and `two` are its f32 state.
struct Update {
  Array param, grad, hyperparameters, factor, one, two, x;
  Array codes[2], absmax[2], tables[2];
  Tensor copy;  ///< where the update writes a copy of param, if it does

  struct With {
    double applied = 1;
    Digits digits = Digits::of_bf16;
  };
  explicit Update(Shape shape) : Update(shape, With{}) {}
  Update(Shape shape, const With& with)
      : param(drawn(with.digits, shape, 1)),
        grad(drawn(with.digits, shape, 2)),
        hyperparameters(scalars({1e-2, 0.3, 0.2})),
        factor(scalars({0.25, with.applied})),
        one(drawn(with.digits, shape, 3)),
        two(squares(with.digits, shape)),
        x(random(DType::bf16, shape, 5)) {
    for (int k = 0; k < 2; ++k) set_codes(k, shape);
  }
  ops::CodedState coded(int k) { return {codes[k], absmax[k], tables[k]}; }

  std::vector<const Array*> outputs() const { return {&param, &one, &two, &x, &absmax[0], &absmax[1]}; }

 private:
  static Array drawn(Digits digits, const Shape& shape, std::uint64_t seed) {
    return digits == Digits::of_bf16 ? random(DType::f32, shape, seed) : irregular(DType::f32, shape, seed);
  }
  static Array squares(Digits digits, const Shape& shape) {
    Array a = drawn(digits, shape, 4);
    for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, a.get(i) * a.get(i) + 1e-3);
    return a;
  }
  void set_codes(int k, const Shape& shape) {
    const std::int64_t n = shape.numel(), blocks = (n + ops::kCodeBlock - 1) / ops::kCodeBlock;
    codes[k] = Array(DType::u8, {n});
    absmax[k] = Array(DType::f32, {blocks});
    for (std::int64_t i = 0; i < n; ++i)
      codes[k].host<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 % 251 + (k == 0 ? 0 : 4));
    for (std::int64_t b = 0; b < blocks; ++b) absmax[k].set(b, b % 3 == 2 ? 0 : 0.5 + static_cast<double>(b));
    const ops::CodeTable table =
        ops::make_code_table(dynamic_map(k == 0 ? Signedness::with_sign : Signedness::without_sign));
    tables[k] = Array(DType::u8, {static_cast<std::int64_t>(sizeof(table))});
    std::memcpy(tables[k].host<std::uint8_t>(), &table, sizeof(table));
  }
};

struct Case {
  std::string name;
  std::vector<Shape> shapes;
  std::function<void(Ctx&, Update&)> run;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

const std::vector<Shape> kVectors{{1}, {9}, {4099}, {2048}}, kCoded{{7}, {256}, {4099}, {70000}};

std::vector<Case> cases() {
  using ops::Nesterov;
  const auto sgd = [](double momentum, Nesterov nesterov) {
    return [=](Ctx& ctx, Update& u) {
      ops::sgd(ctx, {.param = u.param,
                     .momentum_buffer = momentum > 0 ? u.one.tensor() : Tensor{},
                     .grad = u.grad,
                     .hyperparameters = u.hyperparameters,
                     .factor = u.factor,
                     .momentum = momentum,
                     .decay = 0.1,
                     .nesterov = nesterov,
                     .copy = u.copy});
    };
  };
  const auto adafactor = [](Ctx& ctx, Update& u) {
    const bool matrix = u.param.shape().rank == 2;
    const std::int64_t rows = u.param.shape()[0], columns = u.param.shape()[-1];
    const auto first = [&](std::int64_t n) { return u.two.tensor().reshaped({u.two.size()}).slice(0, n); };
    ops::adafactor(ctx, {.param = u.param,
                         .row = matrix ? first(rows) : Tensor{},
                         .column = matrix ? u.two.tensor().reshaped({u.two.size()}).slice(rows, columns) : Tensor{},
                         .square = matrix ? Tensor{} : first(u.two.size()),
                         .grad = u.grad,
                         .hyperparameters = u.hyperparameters,
                         .factor = u.factor,
                         .clip = 0.5,
                         .decay = 0.1});
  };
  const auto muon = [](Nesterov nesterov) {
    return [=](Ctx& ctx, Update& u) {
      Array squares = scalars({1.5e4});
      ops::scaled_copy(ctx, {.y = u.two, .x = u.x, .alpha = 3.5});  // from values that neither device has rounded
      ops::muon_momentum(ctx, {.momentum_buffer = u.one,
                               .y = u.x,
                               .grad = u.grad,
                               .factor = u.factor,
                               .momentum = 0.9,
                               .nesterov = nesterov});
      ops::muon_normalize(ctx, {.x = u.x, .squares = squares});
      ops::muon_apply(ctx, {.param = u.param,
                            .x = u.x,
                            .hyperparameters = u.hyperparameters,
                            .factor = u.factor,
                            .scale = 2,
                            .decay = 0.1});
    };
  };
  return {{"adamw_8bit", kCoded,
           [](Ctx& ctx, Update& u) {
             ops::adamw_8bit(ctx, {.param = u.param,
                                   .m = u.coded(0),
                                   .v = u.coded(1),
                                   .grad = u.grad,
                                   .hyperparameters = u.hyperparameters,
                                   .factor = u.factor,
                                   .eps = 1e-3,
                                   .decay = 0.1,
                                   .copy = u.copy});
           }},
          {"lion_8bit", kCoded,
           [](Ctx& ctx, Update& u) {
             ops::lion_8bit(ctx, {.param = u.param,
                                  .m = u.coded(0),
                                  .grad = u.grad,
                                  .hyperparameters = u.hyperparameters,
                                  .factor = u.factor,
                                  .decay = 0.1,
                                  .copy = u.copy});
           }},
          {"adamw", kVectors,
           [](Ctx& ctx, Update& u) {
             ops::adamw(ctx, {.param = u.param,
                              .m = u.one,
                              .v = u.two,
                              .grad = u.grad,
                              .hyperparameters = u.hyperparameters,
                              .factor = u.factor,
                              .decay = 0.1,
                              .copy = u.copy});
           }},
          {"adamw_bf16", kVectors,
           [](Ctx& ctx, Update& u) {
             Array hyperparameters = scalars({1e-2, 0.3, 0.2, 5}), v = u.two.as(DType::bf16), m = u.one.as(DType::bf16);
             ops::adamw_bf16(ctx, {.param = u.x,
                                   .m = m,
                                   .v = v,
                                   .grad = u.grad,
                                   .hyperparameters = hyperparameters,
                                   .factor = u.factor,
                                   .seed = 3,
                                   .first = 128,
                                   .decay = 0.1});
             ctx.synchronize();
             u.one = m.as(DType::f32);
             u.two = v.as(DType::f32);
           }},
          {"lion", kVectors,
           [](Ctx& ctx, Update& u) {
             ops::lion(ctx, {.param = u.param,
                             .m = u.one,
                             .grad = u.grad,
                             .hyperparameters = u.hyperparameters,
                             .factor = u.factor,
                             .decay = 0.1,
                             .copy = u.copy});
           }},
          {"sgd", kVectors, sgd(0, Nesterov::no)},
          {"sgd_momentum", kVectors, sgd(0.9, Nesterov::no)},
          {"sgd_nesterov", kVectors, sgd(0.9, Nesterov::yes)},
          {"adafactor", {{40}, {2, 7}, {33, 65}, {300, 5}}, adafactor},
          {"muon", kVectors, muon(Nesterov::no)},
          {"muon_nesterov", kVectors, muon(Nesterov::yes)}};
}

class CudaUpdate : public ::testing::TestWithParam<Case> {
 protected:
  static Update on_cuda(const Shape& shape, const Update::With& with = {}) {
    const OnDevice device;
    Ctx ctx(kCuda, MatmulPrecision::storage, 1);
    Update u(shape, with);
    GetParam().run(ctx, u);
    ctx.synchronize();
    for (const Array* a : u.outputs()) a->bytes();
    for (const Array& a : u.codes) a.bytes();
    return u;
  }
  static void expect_same_bytes(const Update& a, const Update& b) {
    for (std::size_t i = 0; i < a.outputs().size(); ++i)
      EXPECT_EQ(a.outputs()[i]->bytes(), b.outputs()[i]->bytes()) << i;
    for (int k = 0; k < 2; ++k) EXPECT_EQ(a.codes[k].bytes(), b.codes[k].bytes());
  }
};

// Stochastically rounded values have the same bits as on the CPU. A GPU may contract other products, so that if the
// last bit of a float32 decides, the value is rounded to its neighbor.
std::int64_t rarely(const Shape& shape) {
  return cuda_info().emulated ? 0 : shape.numel() / 1000;
}

TEST_P(CudaUpdate, IsThatOfTheCpu) {
  const bool stochastic = GetParam().name == "adamw_bf16";
  for (const Shape& shape : GetParam().shapes) {
    Ctx cpu({}, MatmulPrecision::storage, 1);
    Update want(shape);
    GetParam().run(cpu, want);
    const Update got = on_cuda(shape);
    for (std::size_t i = 0; i < want.outputs().size(); ++i) {
      const Array &a = *got.outputs()[i], &b = *want.outputs()[i];
      const double rounding = b.dtype() == DType::bf16 || stochastic ? 0x1p-7 : 4e-6;
      std::int64_t other = 0;
      for (std::int64_t j = 0; j < a.size(); ++j) {
        ASSERT_NEAR(a.get(j), b.get(j), rounding * (std::abs(b.get(j)) + 0.1)) << i << " " << to_string(shape) << j;
        other += a.get(j) != b.get(j);
      }
      if (stochastic) {
        EXPECT_LE(other, rarely(shape)) << i << " " << to_string(shape);
      }
    }
    for (int k = 0; k < 2; ++k) {  // the two devices round differently: occasionally the neighboring code is nearest
      std::int64_t other = 0;
      for (std::size_t j = 0; j < got.codes[k].bytes().size(); ++j) {
        const int far = std::to_integer<int>(got.codes[k].bytes()[j]) - std::to_integer<int>(want.codes[k].bytes()[j]);
        ASSERT_LE(std::abs(far), 1);
        other += far != 0;
      }
      EXPECT_LE(other, shape.numel() / 1000);
    }
  }
}

TEST_P(CudaUpdate, HasTheSameBitsInEveryOrder) {
  const Shape shape = GetParam().shapes[2];
  const Update::With inexact{.digits = Digits::of_dtype};  // their sums are rounded
  const Update want = on_cuda(shape, inexact);
  for_each_schedule([&] { expect_same_bytes(on_cuda(shape, inexact), want); });
}

TEST_P(CudaUpdate, ChangesNothingWhereItIsNotApplied) {
  const Shape shape = GetParam().shapes[1];
  const Update before(shape, {.applied = 0}), after = on_cuda(shape, {.applied = 0});
  EXPECT_EQ(after.param.bytes(), before.param.bytes());
  EXPECT_EQ(after.one.bytes(), before.one.bytes());
  const bool scratch = GetParam().name.starts_with("muon") || GetParam().name == "adamw_bf16";
  if (!scratch) {
    EXPECT_EQ(after.two.bytes(), before.two.bytes());
  }
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(after.codes[k].bytes(), before.codes[k].bytes());
    EXPECT_EQ(after.absmax[k].bytes(), before.absmax[k].bytes());
  }
}

// Aligned for packs and not.
TEST_P(CudaUpdate, WritesTheRoundedParameterToACopy) {
  const std::string& name = GetParam().name;
  if (name == "adamw_bf16" || name == "adafactor" || name.starts_with("muon")) GTEST_SKIP() << "writes no copies";
  for (const Shape& shape : GetParam().shapes)
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const std::int64_t shift : {0, 1}) {
        const Update plain = on_cuda(shape, {.digits = Digits::of_dtype});
        const OnDevice device;
        Ctx ctx(kCuda, MatmulPrecision::storage, 1);
        Update u(shape, {.digits = Digits::of_dtype});
        Array copies(dtype, {shape.numel() + shift});
        u.copy = copies.tensor().slice(shift, shape.numel());
        GetParam().run(ctx, u);
        ctx.synchronize();
        // A compiler may contract the products of single elements differently from those of packs.
        if (shift == 0) {
          EXPECT_EQ(u.param.bytes(), plain.param.bytes());
        }
        const Array want = u.param.as(dtype);
        for (std::int64_t i = 0; i < shape.numel(); ++i)
          ASSERT_EQ(copies.get(shift + i), want.get(i)) << name_of(dtype) << " " << to_string(shape) << " " << i;
      }
}

TEST(WeightCopy, IsWrittenOnTheProcessorToo) {
  Ctx ctx;
  Update u(Shape{33});
  Array copies(DType::bf16, {33});
  u.copy = copies;
  ops::lion(ctx, {.param = u.param,
                  .m = u.one,
                  .grad = u.grad,
                  .hyperparameters = u.hyperparameters,
                  .factor = u.factor,
                  .copy = u.copy});
  EXPECT_EQ(copies.bytes(), u.param.as(DType::bf16).bytes());
}

INSTANTIATE_TEST_SUITE_P(All, CudaUpdate, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace qtrain::testing
