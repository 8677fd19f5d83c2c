#include "kernels/elementwise.h"

#include <limits>

#include "core/rng.h"
#include "tests/kernels/support.h"

namespace qtrain {
namespace {

using testing::Array;
using testing::random;

constexpr std::int64_t kLength = 40007;  // several tasks and a ragged end

Array seed_of(std::int64_t value) {
  Array seed(DType::i64, {1});
  *seed.tensor().as<std::int64_t>() = value;
  return seed;
}

class Elementwise : public ::testing::TestWithParam<DType> {
 protected:
  Ctx ctx_{{}, MatmulPrecision::storage, 3};
};

TEST_P(Elementwise, AddsAlsoInPlace) {
  const Array a = random(GetParam(), {kLength}, 1);
  Array y = random(GetParam(), {kLength}, 2), b = y;
  Array sum = a;
  ops::add(ctx_, {.y = y, .a = sum, .b = y});
  for (std::int64_t i = 0; i < kLength; ++i) b.set(i, a.get(i) + b.get(i));
  EXPECT_EQ(y.bytes(), b.bytes());
}

TEST_P(Elementwise, CopyRoundsToNearestEven) {
  for (const DType from : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    Array x = random(from, {kLength}, 1);
    if (from == DType::f64 || from == DType::f32)
      for (std::int64_t i = 0; i < kLength; ++i) x.set(i, x.get(i) * 1.00390625001 + 1e-3);
    Array y(GetParam(), {kLength}), sum = random(GetParam(), {kLength}, 2);
    ops::copy(ctx_, {.y = store(y), .x = x});
    Array want = x.as(GetParam());
    EXPECT_EQ(y.bytes(), want.bytes()) << name_of(from);
    const Array before = sum;
    ops::copy(ctx_, {.y = accumulate(sum), .x = x});
    for (std::int64_t i = 0; i < kLength; ++i)
      ASSERT_NEAR(sum.get(i), before.get(i) + x.get(i), 0.005 * (1 + std::abs(before.get(i)) + std::abs(x.get(i))))
          << i;
  }
}

TEST_P(Elementwise, CapKeepsItsSignAndNan) {
  const double inf = std::numeric_limits<double>::infinity();
  Array x(GetParam(), {5});
  const std::vector<double> values{inf, -inf, -0.0, std::nan(""), -1e30};
  for (std::size_t i = 0; i < values.size(); ++i) x.set(static_cast<std::int64_t>(i), values[i]);
  ops::cap_logits(ctx_, {.y = x, .x = x, .softcap = 30});
  EXPECT_EQ(x.get(0), 30);
  EXPECT_EQ(x.get(1), -30);
  EXPECT_TRUE(std::signbit(x.get(2)) && x.get(2) == 0);
  EXPECT_TRUE(std::isnan(x.get(3)));
  EXPECT_EQ(x.get(4), -30);
}

TEST_P(Elementwise, CopyKeepsSpecialValues) {
  const double inf = std::numeric_limits<double>::infinity();
  Array x(DType::f32, {9});
  const std::vector<double> values{inf, -inf, 0.0, -0.0, std::nan(""), 1e-40, 3.0e38, -1.0, 2.0};
  for (std::size_t i = 0; i < values.size(); ++i) x.set(static_cast<std::int64_t>(i), values[i]);
  Array y(GetParam(), {9});
  ops::copy(ctx_, {.y = store(y), .x = x});
  EXPECT_EQ(y.get(0), inf);
  EXPECT_EQ(y.get(1), -inf);
  EXPECT_TRUE(std::signbit(y.get(3)));
  EXPECT_TRUE(std::isnan(y.get(4)));
  EXPECT_EQ(y.get(7), -1);
  EXPECT_EQ(y.get(8), 2);
}

TEST_P(Elementwise, CapsLogitsAlsoInPlace) {
  for (const double cap : {0.0, 0.5, 30.0}) {
    const double scale = 1.75;
    Array x = random(GetParam(), {kLength}, 1), y(GetParam(), {kLength});
    ops::cap_logits(ctx_, {.y = y, .x = x, .scale = scale, .softcap = cap});
    for (std::int64_t i = 0; i < kLength; ++i) {
      const double z = scale * x.get(i), want = cap > 0 ? cap * std::tanh(z / cap) : z;
      // tanh to 2 ulp of float32, and the rounding of the result.
      const double of = GetParam() == DType::f64 ? 1e-15 : GetParam() == DType::f32 ? 5e-7 : 4e-3;
      ASSERT_NEAR(y.get(i), want, of * std::abs(want)) << cap << " " << i;
    }
    ops::cap_logits(ctx_, {.y = x, .x = x, .scale = scale, .softcap = cap});
    EXPECT_EQ(x.bytes(), y.bytes());
  }
}

TEST_P(Elementwise, Fills) {
  Array y = random(GetParam(), {kLength}, 1);
  ops::fill(ctx_, {.y = y, .value = -1.5});
  for (std::int64_t i = 0; i < kLength; ++i) ASSERT_EQ(y.get(i), -1.5);
}

TEST_P(Elementwise, DropoutFollowsTheCounterBasedMask) {
  if (GetParam() == DType::f16) GTEST_SKIP() << "no arithmetic in f16";
  const std::int64_t key = 0x123456789abcdefLL;
  const std::uint64_t stream = (std::uint64_t{1} << 40) + 7;
  Array x = random(GetParam(), {kLength}, 1), y(GetParam(), {kLength}), seed = seed_of(key);
  ops::dropout(ctx_, {.y = store(y), .x = x, .seed = seed, .stream = stream, .p = 0.25});
  std::int64_t dropped = 0;
  for (std::int64_t i = 0; i < kLength; ++i) {
    const auto words = philox(static_cast<std::uint64_t>(key), stream, static_cast<std::uint64_t>(i / 4));
    const bool keep = uniform(words[static_cast<std::size_t>(i % 4)]) >= 0.25F;
    dropped += !keep;
    Array want(GetParam(), {1});
    want.set(0, keep ? x.get(i) * static_cast<float>(1 / 0.75) : 0);
    ASSERT_NEAR(y.get(i), want.get(0), 1e-2 * std::abs(want.get(0))) << i;
    ASSERT_EQ(y.get(i) == 0, want.get(0) == 0) << i;
  }
  EXPECT_NEAR(static_cast<double>(dropped) / kLength, 0.25, 0.01);
  Array in_place = x;
  ops::dropout(ctx_, {.y = store(in_place), .x = in_place, .seed = seed, .stream = stream, .p = 0.25});
  EXPECT_EQ(in_place.bytes(), y.bytes());
}

TEST_P(Elementwise, DropoutOfNothingIsTheIdentity) {
  if (GetParam() == DType::f16) GTEST_SKIP() << "no arithmetic in f16";
  Array x = random(GetParam(), {100}, 1), y(GetParam(), {100}), seed = seed_of(3);
  ops::dropout(ctx_, {.y = store(y), .x = x, .seed = seed, .stream = 1, .p = 0});
  EXPECT_EQ(y.bytes(), x.bytes());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Elementwise, ::testing::Values(DType::f64, DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace qtrain
