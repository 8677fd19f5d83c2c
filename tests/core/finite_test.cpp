#include "core/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/half.h"

namespace qtrain {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Bad {
  float value;
  std::size_t place;
};

template <class T>
class Finite : public ::testing::Test {
 protected:
  // longer than a block that is checked as a whole
  static constexpr std::size_t kCount = 10'001;
  static std::optional<std::int64_t> first(const std::vector<T>& values) {
    return first_nonfinite(view_of(std::span<const T>(values), {static_cast<std::int64_t>(values.size())}));
  }
};
using Types = ::testing::Types<double, float, F16, Bf16>;
TYPED_TEST_SUITE(Finite, Types);

TYPED_TEST(Finite, TheFirstIsFound) {
  for (const auto& [value, place] : {Bad{kInf, 0}, Bad{-kInf, 4095}, Bad{kNan, 4096}, Bad{kNan, 10'000}}) {
    std::vector<TypeParam> values(this->kCount, TypeParam(-1.5F));
    EXPECT_EQ(this->first(values), std::nullopt);
    values.back() = TypeParam(kNan);
    values[place] = TypeParam(value);
    EXPECT_EQ(this->first(values), static_cast<std::int64_t>(place));
  }
}

TYPED_TEST(Finite, TheLargestAndTheLeastAreFinite) {
  const std::vector<TypeParam> values{TypeParam(65504.0F), TypeParam(-65504.0F), TypeParam(6e-8F), TypeParam(0.0F)};
  EXPECT_EQ(this->first(values), std::nullopt);
}

TEST(FiniteOfIntegers, AllAre) {
  const std::vector<std::int32_t> values{0x7f800000, -1};
  EXPECT_EQ(first_nonfinite(view_of(std::span<const std::int32_t>(values), {2})), std::nullopt);
}

TEST(FiniteWords, NameTheElement) {
  const std::vector<float> values{1, kNan};
  EXPECT_EQ(describe_element(view_of(std::span<const float>(values), {2}), 1), "element 1 is nan");
}

}  // namespace
}  // namespace qtrain
