// The schedule reduce_lr_on_plateau, compared with torch's as transformers uses it
// (tests/train/make_recipe_goldens.py).
#include "optim/plateau.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/os/file.h"
#include "optim/schedule.h"

namespace qtrain {
namespace {

TEST(Plateau, ReducesTheRateWhereTorchDoes) {
  const Json golden = read_json(std::string(QTRAIN_SOURCE_DIR) + "/tests/train/recipe_goldens/plateau.json");
  std::size_t reductions = 0;
  ASSERT_GE(golden.at("rows").size(), 10u);
  for (const Json& row : golden.at("rows")) {
    const double peak = row.at("learning_rate");
    const Schedule schedule = make_schedule({.kind = ScheduleKind::reduce_lr_on_plateau,
                                             .learning_rate = peak,
                                             .warmup_steps = 3,
                                             .total_steps = 20,
                                             .kwargs = row.at("kwargs")});
    Plateau plateau;
    std::int64_t step = 0;
    double before = peak;
    for (const Json& rate : row.at("rates")) {
      const double is = learning_rate(schedule, {.peak = peak, .step = step, .reductions = plateau.reductions});
      EXPECT_EQ(is, rate.get<double>()) << row.at("kwargs") << " step " << step;
      reductions += is < before;
      before = is;
      const Json& metric = row.at("metrics").at(static_cast<std::size_t>(step++));
      plateau.add(schedule.plateau, metric.is_null() ? std::nan("") : metric.get<double>());
    }
  }
  EXPECT_GT(reductions, 30u);
}

}  // namespace
}  // namespace qtrain
