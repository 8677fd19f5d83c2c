#include "optim/loss_scale.h"

#include <gtest/gtest.h>

namespace qtrain {
namespace {

// torch.amp.GradScaler(init_scale=2**16, growth_factor=2, backoff_factor=0.5, growth_interval=2000).
TEST(LossScale, DoublesAfter2000CleanStepsAndHalvesAtOnce) {
  LossScale scale;
  EXPECT_EQ(scale.value, 65536);
  for (int i = 0; i < 1999; ++i) scale.count(true);
  EXPECT_EQ(scale.value, 65536);
  scale.count(true);
  EXPECT_EQ(scale.value, 131072);
  for (int i = 0; i < 1999; ++i) scale.count(true);
  scale.count(false);
  EXPECT_EQ(scale.value, 65536);
  for (int i = 0; i < 1999; ++i) scale.count(true);
  EXPECT_EQ(scale.value, 65536) << "steps before the overflow count";
  scale.count(true);
  EXPECT_EQ(scale.value, 131072);
}

TEST(LossScale, StaysAFloat) {
  LossScale scale{.value = 0x1p127};
  for (int i = 0; i < 2000; ++i) scale.count(true);
  EXPECT_EQ(scale.value, 0x1p127);
}

}  // namespace
}  // namespace qtrain
