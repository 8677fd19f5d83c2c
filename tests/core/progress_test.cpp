#include "core/progress.h"

#include <gmock/gmock.h>

#include <cmath>

namespace qtrain {
namespace {

const Progress kState{
    .step = 12, .total = 300, .loss = 2.25, .learning_rate = 1e-4, .tokens_per_second = 812.4, .eta_seconds = 61};

TEST(FormatProgress, LeavesOutWhatMattersLeast) {
  EXPECT_EQ(format_progress(kState), "step 12/300   4%  loss 2.2500  lr 0.0001  812 tokens/s  ETA 1:01");
  EXPECT_EQ(format_progress(kState, 60), "step 12/300   4%  loss 2.2500  812 tokens/s  ETA 1:01");
  EXPECT_EQ(format_progress(kState, 40), "step 12/300   4%  loss 2.2500  ETA 1:01");
  EXPECT_EQ(format_progress(kState, 38), "step 12/300  loss 2.2500  ETA 1:01");
  EXPECT_EQ(format_progress(kState, 30), "step 12/300  loss 2.2500");
  EXPECT_EQ(format_progress(kState, 12), "step 12/300");
  EXPECT_EQ(format_progress(kState, 5), "step");
  EXPECT_EQ(format_progress(kState, 2), "st");
}

TEST(FormatProgress, HasEverythingWhereThereIsRoom) {
  Progress p = kState;
  p.epoch = 0.5;
  p.memory_bytes = 1.2 * (1 << 30);
  p.data_wait = 0.034;
  EXPECT_EQ(format_progress(p),
            "step 12/300   4%  epoch 0.50  loss 2.2500  lr 0.0001  812 tokens/s  ETA 1:01  mem 1.2 GiB  wait 3%");
  EXPECT_EQ(format_progress(p, 79), "step 12/300   4%  epoch 0.50  loss 2.2500  lr 0.0001  812 tokens/s  ETA 1:01");
  EXPECT_EQ(format_progress(p, 60), format_progress(kState, 60));
}

TEST(FormatProgress, TellsALossThatIsNoNumberInWords) {
  EXPECT_EQ(format_progress({.step = 1, .total = 3, .loss = -std::nan(""), .learning_rate = 1e-4}),
            "step 1/3  33%  loss not finite  lr 0.0001");
}

TEST(FormatProgress, FillsTheRestOfALiveLineWithABar) {
  const Progress half{.step = 50, .total = 100, .unit = "exporting", .counted = false};
  EXPECT_EQ(format_live(half, 26), "exporting  50%  [####----]");
  EXPECT_EQ(format_live(half, 23), "exporting  50%");
  EXPECT_EQ(format_live(half, 200), "exporting  50%  [###########-----------]");
  EXPECT_EQ(format_live({.step = 7, .unit = "row"}, 80), "row 7");  // the total is unknown
  EXPECT_EQ(format_live({.step = 9, .total = 3}, 30), "step 9/3 100%  [#############]");
}

}  // namespace
}  // namespace qtrain
