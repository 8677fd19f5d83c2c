#include "core/gpu_architectures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qtrain {

TEST(GpuArchitectures, MachineCodeRunsOnLaterGpusOfItsMajorVersion) {
  EXPECT_TRUE(runs_on("80-real", {8, 0}));
  EXPECT_TRUE(runs_on("80-real", {8, 9}));
  EXPECT_FALSE(runs_on("89-real", {8, 6}));
  EXPECT_FALSE(runs_on("80-real", {9, 0}));
  EXPECT_FALSE(runs_on("80-real", {7, 5}));
}

TEST(GpuArchitectures, CodeWithAnARunsOnItsOwnOnly) {
  EXPECT_TRUE(runs_on("90a-real", {9, 0}));
  EXPECT_FALSE(runs_on("100a-real", {10, 3}));
  EXPECT_FALSE(runs_on("90a", {10, 0}));
}

TEST(GpuArchitectures, PtxRunsOnEveryLaterGpu) {
  EXPECT_TRUE(runs_on("80", {12, 0}));
  EXPECT_TRUE(runs_on("80-virtual", {9, 0}));
  EXPECT_TRUE(runs_on("120-virtual", {12, 1}));
  EXPECT_FALSE(runs_on("120", {10, 0}));
  EXPECT_FALSE(runs_on("86-virtual", {8, 0}));
}

TEST(GpuArchitectures, OneOfAListIsEnough) {
  constexpr const char* kRelease = "80-real 86-real 89-real 90a-real 100-real 120";
  EXPECT_TRUE(runs_on(kRelease, {8, 7}));
  EXPECT_TRUE(runs_on(kRelease, {9, 0}));
  EXPECT_TRUE(runs_on(kRelease, {13, 0}));
  EXPECT_FALSE(runs_on(kRelease, {7, 5}));
  EXPECT_FALSE(runs_on(kRelease, {11, 0}));
}

TEST(GpuArchitectures, SayWhyAGpuCannotBeUsed) {
  using ::testing::AllOf, ::testing::HasSubstr;
  EXPECT_EQ(architecture_problem("75-real 90a-real", {7, 5}), "");
  EXPECT_THAT(architecture_problem("90a-real", {8, 9}),
              AllOf(HasSubstr("no kernels for compute capability 8.9"), HasSubstr("QTRAIN_CUDA_ARCHS is 90a-real")));
  for (const ComputeCapability old : {ComputeCapability{7, 0}, {6, 1}})
    EXPECT_THAT(architecture_problem("75", old), HasSubstr("7.5 (Turing) or newer is needed"));
}

}  // namespace qtrain
