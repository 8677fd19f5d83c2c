#include "bench/cases/step_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "kernels/gemm_key.h"
#include "kernels/op_name.h"
#include "kernels/rms_norm.h"

namespace qtrain::bench {
namespace {

TEST(StepGroups, OfKernelsAndOps) {
  const struct {
    const char *name, *detail;
    std::int64_t rank;
    const char* group;
  } cases[] = {
      {"gemm", "16384x3072x1024 bfloat16", 0, "gemm"},
      {"gemm", "16384x3072x1024 bfloat16", 16, "gemm"},
      {"gemm", "16384x48x1024 bfloat16", 16, "adapter gemms"},
      {"gemm", "16384x1024x16 bfloat16 adds", 16, "adapter gemms"},
      {"gemm", "16384x16x1024 bfloat16", 0, "gemm"},
      {"grouped_gemm", "", 16, "gemm"},
      {"dequantize4", "", 16, "dequantize"},
      {"adapter_grads", "", 16, "adapter gemms"},
      {"adapter_columns", "", 16, "adapter gemms"},
      {"attention", "", 0, "attention forward"},
      {"attention_dq", "", 0, "attention backward"},
      {"attention_grad", "", 0, "attention backward"},
      {"normed_rope_grad", "", 0, "rope backward"},
      {"rope", "", 0, "other element-wise"},
      {"rms_norm_grad", "", 0, "other element-wise"},
      {"cross_entropy", "", 0, "cross-entropy"},
      {"adamw_8bit", "", 0, "update"},
      {"adam_w", "", 0, "update"},
      {"segment_squares", "", 0, "update"},
      {"quantize4", "", 0, "update"},
      {"fill", "", 0, "copies and fills"},
  };
  for (const auto& c : cases) EXPECT_EQ(step_group(c.name, c.detail, c.rank), c.group) << c.name << " " << c.detail;
}

TEST(StepGroups, HaveAllThatIsPredicted) {
  const Json document = read_json(QTRAIN_SOURCE_DIR "/bench/step_cases.json");
  int found = 0;
  for (const auto& [name, values] : document.at("cases").items()) {
    const Json predicted = values.value("predicted_ms", Json::object());
    for (const auto& [group, ms] : predicted.items()) {
      EXPECT_THAT(step_groups(), ::testing::Contains(group)) << name;
      ++found;
    }
  }
  EXPECT_GT(found, 0);
}

TEST(StepGroups, ASizeIsWrittenAsTheGroupReadsIt) {
  EXPECT_EQ(sizes_of({.m = 512, .n = 48, .k = 1536, .operands = DType::bf16, .result = DType::f32, .adds = true}),
            "512x48x1536 bfloat16>float32 adds");
  EXPECT_EQ(sizes_of({.m = 1, .n = 2, .k = 3}), "1x2x3 float32");
}

TEST(OpName, IsThatOfTheArguments) {
  EXPECT_STREQ(ops::op_name<ops::RmsNormGrad>(), "rms_norm_grad");
  EXPECT_STREQ(ops::op_name<ops::Gemm>(), "gemm");
}

}  // namespace
}  // namespace qtrain::bench
