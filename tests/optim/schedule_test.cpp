#include "optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/errors.h"

namespace qtrain {
namespace {

ScheduleKind kind_named(const std::string& name) {
  const auto names = schedule_names();
  const auto at = std::find(names.begin(), names.end(), name);
  EXPECT_NE(at, names.end()) << name;
  return static_cast<ScheduleKind>(at - names.begin());
}

Schedule from(const Json& config) {
  return make_schedule({.kind = kind_named(config.at("lr_scheduler_type").get<std::string>()),
                        .learning_rate = config.at("learning_rate").get<double>(),
                        .warmup_steps = config.at("warmup_steps").get<std::int64_t>(),
                        .total_steps = config.at("max_steps").get<std::int64_t>(),
                        .kwargs = config.value("lr_scheduler_kwargs", Json::object())});
}

std::string message_of(const ScheduleRequest& request) {
  return test::error_of(ErrorKind::usage, [&] { make_schedule(request); });
}

// Rates that transformers computed (tests/golden/golden_schedules.py); the formulas and the order of their operations
// are the same, so only the last bit of cos and pow may differ.
TEST(Schedule, EqualsTransformers) {
  const Json golden = read_json(std::string(QTRAIN_SOURCE_DIR) + "/tests/golden/data/schedules.json");
  std::size_t compared = 0;
  for (const Json& row : golden.at("rows")) {
    const Json& config = row.at("config");
    const Schedule schedule = from(config);
    const double peak = config.at("learning_rate").get<double>();
    std::int64_t step = 0;
    for (const Json& expected : row.at("learning_rates")) {
      EXPECT_NEAR(peak * lr_factor(schedule, step), expected.get<double>(), 1e-18) << config.dump() << " step " << step;
      ++step, ++compared;
    }
  }
  EXPECT_GT(compared, 200u);
}

// A run may be resumed beyond its planned end, where schedules stay at their minimum.
TEST(Schedule, StaysAtItsFloorAfterTheEnd) {
  const Json common = {{"learning_rate", 1e-3}, {"warmup_steps", 2}, {"max_steps", 10}};
  const auto factor = [&](const char* name, Json kwargs) {
    Json config = common;
    config["lr_scheduler_type"] = name;
    config["lr_scheduler_kwargs"] = std::move(kwargs);
    return lr_factor(from(config), 25);
  };
  EXPECT_EQ(factor("linear", Json::object()), 0.0);
  EXPECT_EQ(factor("cosine_with_restarts", {{"num_cycles", 2}}), 0.0);
  EXPECT_DOUBLE_EQ(factor("polynomial", {{"lr_end", 1e-5}}), 1e-2);
  EXPECT_EQ(factor("warmup_stable_decay", {{"num_decay_steps", 3}, {"min_lr_ratio", 0.25}}), 0.25);
}

TEST(Schedule, WarmupOfTheWholeRunDoesNotDivideByZero) {
  const auto s =
      make_schedule({.kind = ScheduleKind::polynomial, .learning_rate = 1, .warmup_steps = 4, .total_steps = 4});
  EXPECT_EQ(lr_factor(s, 3), 0.75);
  EXPECT_DOUBLE_EQ(lr_factor(s, 4), 1e-7);
}

TEST(Schedule, RefusesWhatItCannotDo) {
  using testing::HasSubstr;
  using enum ScheduleKind;
  EXPECT_THAT(message_of({.kind = greedy}), HasSubstr("schedule greedy is not available"));
  EXPECT_THAT(message_of({.kind = reduce_lr_on_plateau, .kwargs = {{"factor", 1}}}), HasSubstr("below 1"));
  EXPECT_THAT(message_of({.kind = reduce_lr_on_plateau, .kwargs = {{"mode", "least"}}}),
              HasSubstr("choose one of min, max"));
  EXPECT_THAT(message_of({.kind = reduce_lr_on_plateau, .kwargs = {{"min_lr", {1, 2}}}}),
              HasSubstr("must be a number"));
  EXPECT_THAT(message_of({.kind = reduce_lr_on_plateau, .kwargs = {{"eps", -1}}}), HasSubstr("not be negative"));
  EXPECT_THAT(message_of({.kind = cosine, .kwargs = {{"num_cycle", 1}}}), HasSubstr("no argument \"num_cycle\""));
  EXPECT_THAT(message_of({.kind = linear, .kwargs = {{"power", 1}}}), HasSubstr("takes no arguments"));
  EXPECT_THAT(message_of({.kind = cosine_with_min_lr, .learning_rate = 1}), HasSubstr("needs min_lr or min_lr_rate"));
  EXPECT_THAT(
      message_of({.kind = cosine_with_min_lr, .learning_rate = 1, .kwargs = {{"min_lr", .1}, {"min_lr_rate", .1}}}),
      HasSubstr("both given"));
  EXPECT_THAT(message_of({.kind = polynomial, .learning_rate = 1e-8}), HasSubstr("must be smaller than learning_rate"));
  EXPECT_THAT(message_of({.kind = warmup_stable_decay}), HasSubstr("needs num_decay_steps"));
  EXPECT_THAT(message_of({.kind = warmup_stable_decay, .kwargs = {{"num_decay_steps", 1}, {"decay_type", "sqrt"}}}),
              HasSubstr("choose one of linear, cosine, 1-sqrt"));
  EXPECT_THAT(message_of({.kind = cosine, .kwargs = {{"num_cycles", "two"}}}), HasSubstr("must be a number"));
  EXPECT_THAT(message_of({.kind = inverse_sqrt, .kwargs = {{"timescale", 0}}}), HasSubstr("at least 1"));
}

}  // namespace
}  // namespace qtrain
