// The bars of the last minutes.
#include "monitor/history.h"

#include <gmock/gmock.h>

#include <cmath>

namespace qtrain::monitor {
namespace {

constexpr History::Look kLook{.now = 5, .interval = 1, .bars = 8, .full = 100};

TEST(History, HasABarForEachSampleAtFirst) {
  History h;
  for (int i = 1; i <= 5; ++i) h.add(i, 25.0 * (i - 1));
  EXPECT_EQ(h.drawn(kLook), "   _:=+#");
  History::Look look = kLook;
  look.unicode = true;
  EXPECT_EQ(h.drawn(look), "   ▁▃▅▆█");
  look.bars = 3;  // of 4 seconds each
  EXPECT_EQ(h.drawn(look), " ▃▇");
}

TEST(History, KeepsTheBarOfTheTimeBeforeWithoutAValue) {
  History h;
  h.add(1, 100);
  h.add(4, 0);
  h.add(4.5, std::nan(""));
  EXPECT_EQ(h.drawn(kLook), "   ###__");
  EXPECT_EQ(History().drawn(kLook), "        ");
}

TEST(History, TheLargestIsFullWhereNothingElseIs) {
  History h;
  for (int i = 1; i <= 4; ++i) h.add(i, 1e9 * i);
  History::Look look = kLook;
  look.full = 0;
  EXPECT_EQ(h.drawn(look), "   :=+##");
  EXPECT_EQ(History().drawn(look), "        ");
}

// Bars grow as time passes, and do not move in between.
TEST(History, ReachesBackForMinutes) {
  EXPECT_EQ(History::bar_seconds({.now = 7, .interval = 1, .bars = 8}), 1);
  EXPECT_EQ(History::bar_seconds({.now = 8, .interval = 1, .bars = 8}), 2);
  EXPECT_EQ(History::bar_seconds({.now = 1e6, .interval = 1, .bars = 40}), 8);
  History h;
  for (int i = 1; i <= 1000; ++i) h.add(i, i < 900 ? 0 : 100);
  const std::string bars = h.drawn({.now = 1000, .interval = 1, .bars = 11, .full = 100});
  EXPECT_EQ(bars, "_______*###");  // of 32 s
}

}  // namespace
}  // namespace qtrain::monitor
