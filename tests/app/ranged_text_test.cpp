#include "app/commands/ranged_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qtrain {
namespace {

TEST(RangedText, HasThreeDigitsAndOneNumberWhereBothEndsAreAlike) {
  struct Case {
    Ranged<double> range;
    const char *amount, *duration, *cost;
  };
  const Case cases[] = {
      {{64251, 70000, 105649}, "64300 to 106000", "17.8 to 29.3 h", "64251.00 to 105649.00"},
      {{105649, 70000, 64251}, "64300 to 106000", "17.8 to 29.3 h", "64251.00 to 105649.00"},
      {{9000, 8000, 7000}, "7000 to 9000", "1.94 to 2.5 h", "7000.00 to 9000.00"},
      {{200, 150, 90}, "90 to 200", "1.5 to 3.33 min", "90.00 to 200.00"},
      {{0.25, 0.2, 0.125}, "0.125 to 0.25", "125 to 250 ms", "0.12 to 0.25"},
      {{1e6, 1e6, 1e6}, "1000000", "11.6 days", "1000000.00"},
      {{999.6, 999.6, 999.6}, "1000", "16.7 min", "999.60"},
      {{1.2341, 1.2342, 1.2343}, "1.23", "1.23 s", "1.23"},
      {{0, 0, 0}, "0", "0 ms", "0.00"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(range_text(c.range), c.amount);
    EXPECT_EQ(duration_range_text(c.range), c.duration) << c.amount;
    EXPECT_EQ(cost_range_text(c.range), c.cost) << c.amount;
  }
  EXPECT_EQ(amount_range_text({.slow = 64251, .usual = 7e4, .fast = 105649}), "64.3-106 k");
  EXPECT_EQ(amount_range_text({.slow = 812, .usual = 812, .fast = 812}), "812");
  EXPECT_EQ(amount_range_text({.slow = 999.4, .usual = 999.4, .fast = 999.4}), "999");
  EXPECT_EQ(amount_range_text({.slow = 999.6, .usual = 999.6, .fast = 999.6}), "1 k");
  EXPECT_EQ(amount_range_text({.slow = 1.9e6, .usual = 2e6, .fast = 3.021e6}), "1.9-3.02 M");
  EXPECT_EQ(range_text({.slow = 1, .usual = 2, .fast = 3}, "-"), "1-3");
}

TEST(RangedJson, NamesBothEnds) {
  EXPECT_EQ(range_json(Ranged<double>{3, 2, 1}), (Json{{"low", 1.0}, {"high", 3.0}}));
  EXPECT_EQ(usual_json(Ranged<double>{3, 2, 1}), Json(2.0));
  EXPECT_TRUE(range_json({}).is_null());
  EXPECT_TRUE(usual_json({}).is_null());
}

}  // namespace
}  // namespace qtrain
