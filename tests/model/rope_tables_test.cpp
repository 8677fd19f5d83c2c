#include "model/rope_tables.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/support.h"

namespace qtrain::testing {
namespace {

// transformers computes frequencies in f32: a power, a division and, for yarn, a blend of two frequencies.
constexpr double kRelative = 1e-6;

TEST(RopeTables, FrequenciesAreThoseOfTransformers) {
  const Json goldens = read_json(std::string(QTRAIN_SOURCE_DIR) + "/tests/model/goldens/rope.json");
  ASSERT_GE(goldens.size(), 10u);
  for (const Json& golden : goldens) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const ModelConfig config = parse_model_config(golden["config"], "config.json");
    const RopeFrequencies f =
        rope_frequencies(config.ropes.front(), config.head_dim, golden["longest"].get<std::int64_t>());
    EXPECT_NEAR(f.attention_factor, golden["attention_factor"].get<double>(), 1e-12);
    ASSERT_EQ(f.inv_freq.size(), golden["inv_freq"].size());
    for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
      const double truth = golden["inv_freq"][i].get<double>();
      EXPECT_NEAR(f.inv_freq[i], truth, kRelative * truth) << i;
    }
  }
}

TEST(RopeTables, HoldCosAndSinOfEveryAngle) {
  const RopeFrequencies f{.inv_freq = {1.0, 0.25, 1e-3}, .attention_factor = 1.5};
  Ctx ctx({}, MatmulPrecision::storage, 1);
  for (const DType d : {DType::f64, DType::f32}) {
    Array cos(d, {40, 3}), sin(d, {40, 3});
    fill_rope_tables(ctx, f, {cos, sin});
    for (std::int64_t p = 0; p < 40; ++p)
      for (std::int64_t i = 0; i < 3; ++i) {
        const double angle = static_cast<double>(p) * f.inv_freq[static_cast<std::size_t>(i)];
        // f32: phases up to 40 are rounded to 2e-6.
        EXPECT_NEAR(cos.get(p * 3 + i), 1.5 * std::cos(angle), d == DType::f64 ? 1e-15 : 4e-6);
        EXPECT_NEAR(sin.get(p * 3 + i), 1.5 * std::sin(angle), d == DType::f64 ? 1e-15 : 4e-6);
      }
  }
}

}  // namespace
}  // namespace qtrain::testing
