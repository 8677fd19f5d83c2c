// Training curves of the program compared with those of transformers' Trainer (tests/golden/README.md).
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::DoubleNear;

class Curve : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = kGoldens / "curves" / GetParam();
    expected_ = read_json(folder_ / "expected.json");
    qtrain_ok({.words = {"config.json", "output_dir=" + (output_ / "out").string(), "threads=1"}, .folder = folder_});
  }
  /// Both runs are float32: each may be as far from float64 as the golden was found to be, and another summation order
  /// on another processor adds about as much again. The last bit of a loss near 5 is 5e-7.
  double tolerance(const char* what) const { return 4 * expected_.at("spread").at(what).get<double>() + 1e-6; }

  fs::path folder_;
  TempFolder output_;
  Json expected_;
};

TEST_P(Curve, EveryStepIsAsTransformersLogsIt) {
  const auto rows = history(output_ / "out", "loss");
  const Json& steps = expected_.at("steps");
  ASSERT_EQ(rows.size(), steps.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("step"), steps[i].at("step"));
    EXPECT_NEAR(rows[i].at("loss"), steps[i].at("loss"), tolerance("loss")) << "step " << i + 1;
    EXPECT_NEAR(rows[i].at("grad_norm"), steps[i].at("grad_norm"), tolerance("grad_norm")) << "step " << i + 1;
    // Both compute it in double in the same way.
    EXPECT_NEAR(rows[i].at("learning_rate"), steps[i].at("learning_rate"), 1e-15) << "step " << i + 1;
    EXPECT_NEAR(rows[i].at("epoch"), steps[i].at("epoch"), 1e-15) << "step " << i + 1;
    if (steps[i].contains("aux_loss")) {
      EXPECT_NEAR(rows[i].at("aux_loss"), steps[i].at("aux_loss"), tolerance("loss")) << "step " << i + 1;
    }
  }
}

class CurveWithEnd : public Curve {};  // curves that include the final weights

TEST_P(CurveWithEnd, EndsInTheWeightsOfTransformers) {
  // Twice the tolerance of a loss: where a gradient is near zero, AdamW's division turns a rounding error into a whole
  // step.
  EXPECT_LT(largest_difference_of_sums(folder_ / "expected_final.safetensors", output_ / "out"),
            2 * tolerance("final"));
}

std::vector<std::string> curves_with(const char* file) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens / "curves"))
    if (fs::exists(entry.path() / file)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}
const auto kName = [](const auto& info) { return info.param; };

INSTANTIATE_TEST_SUITE_P(All, Curve, ::testing::ValuesIn(curves_with("expected.json")), kName);
INSTANTIATE_TEST_SUITE_P(All, CurveWithEnd, ::testing::ValuesIn(curves_with("expected_final.safetensors")), kName);

TEST(Curves, AreThere) {
  EXPECT_GE(curves_with("expected.json").size(), 8u);
  EXPECT_GE(curves_with("expected_final.safetensors").size(), 4u);
}

}  // namespace
}  // namespace qtrain::e2e
