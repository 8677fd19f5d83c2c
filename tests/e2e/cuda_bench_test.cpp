#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

TEST(CudaBench, RunsEveryOp) {
  const Outcome outcome = qtrain_ok({.words = {"bench", "--device", "cuda", "--small"}});
  for (const char* name : {"rms_norm_grad/", "cross_entropy/", "adamw/", "adamw_8bit/", "adafactor/", "attention_grad/",
                           "gemm/qwen3-0.6b/head/"})
    EXPECT_THAT(outcome.out, ::testing::HasSubstr(name));
}

}  // namespace
}  // namespace qtrain::e2e
