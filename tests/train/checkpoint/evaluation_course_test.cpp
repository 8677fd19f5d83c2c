// When early stopping ends a run, compared with transformers' Trainer and EarlyStoppingCallback
// (tests/train/make_recipe_goldens.py), and how the course of a run is found in its logged evaluations.
#include "train/checkpoint/evaluation_course.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "core/os/file.h"

namespace qtrain {
namespace {

using ::testing::HasSubstr;

TrainingSection stopping_after(std::int64_t patience) {
  TrainingSection t;
  t.early_stopping_patience = patience;
  return t;
}

// The log_history of a run with these losses after steps 1, 2, ...
Json logged(const std::vector<double>& losses) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < losses.size(); ++i) {
    rows.push_back({{"step", i + 1}, {"loss", 1.0}});
    rows.push_back({{"step", i + 1}, {"eval_loss", losses[i]}});
  }
  return rows;
}

TEST(EvaluationCourse, EndsRunsWhereTransformersDoes) {
  const Json golden = read_json(std::string(QTRAIN_SOURCE_DIR) + "/tests/train/recipe_goldens/early_stopping.json");
  ASSERT_GE(golden.at("rows").size(), 10u);
  for (const Json& row : golden.at("rows")) {
    TrainingSection t = stopping_after(row.at("patience"));
    t.early_stopping_threshold = row.at("threshold");
    t.greater_is_better = row.at("arguments").value("greater_is_better", false);
    EvaluationCourse course(t, {}, Json::array());
    std::int64_t step = 0;
    if (row.at("arguments").contains("eval_on_start")) course.add(0, 0.5);  // better than all that follow
    for (const Json& metric : row.at("metrics")) {
      course.add(++step, metric.is_null() ? std::nan("") : metric.get<double>());
      if (course.ends_run()) break;
    }
    EXPECT_EQ(step, row.at("last_step")) << row;
    EXPECT_EQ(course.bad_evaluations(), row.at("counter")) << row;
  }
}

TEST(EvaluationCourse, IsFoundInLoggedRows) {
  const TrainingSection t = stopping_after(3);
  const PlateauRules rules{.factor = 0.5, .patience = 0};
  const std::vector<double> losses{3, 2, 2.5, 2.4, 1, 1.5, 1.25};
  EvaluationCourse whole(t, rules, Json::array());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    whole.add(static_cast<std::int64_t>(i) + 1, losses[i]);
    const EvaluationCourse read(t, rules,
                                logged({losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(i) + 1}));
    EXPECT_EQ(read.bad_evaluations(), whole.bad_evaluations()) << i;
    EXPECT_EQ(read.plateau().reductions, whole.plateau().reductions) << i;
  }
  EXPECT_EQ(whole.bad_evaluations(), 2);
  EXPECT_EQ(whole.plateau().reductions, 4);
}

// A run that is stopped after an evaluation and before the save that follows repeats the evaluation when it resumes.
TEST(EvaluationCourse, CountsAnEvaluationOnce) {
  Json rows = logged({3, 4});
  rows.push_back({{"step", 2}, {"eval_loss", 4.0}});
  EXPECT_EQ(EvaluationCourse(stopping_after(5), {}, rows).bad_evaluations(), 1);
}

TEST(EvaluationCourse, TakesNullForALossThatIsNotFinite) {
  Json rows = logged({3});
  rows.push_back({{"step", 2}, {"eval_loss", nullptr}});
  EXPECT_EQ(EvaluationCourse(stopping_after(5), {}, rows).bad_evaluations(), 1);
}

// The log_history has no infinity, so a resumed run could not count one like the run that it goes on with.
TEST(EvaluationCourse, CountsInfinityAsItIsLogged) {
  TrainingSection t = stopping_after(5);
  t.greater_is_better = true;
  const PlateauRules rules{.mode = Better::higher, .factor = 0.5, .patience = 0};
  EvaluationCourse live(t, rules, logged({3}));
  live.add(2, std::numeric_limits<double>::infinity());
  live.add(3, 4);
  Json rows = logged({3});
  rows.push_back({{"step", 2}, {"eval_loss", nullptr}});
  rows.push_back({{"step", 3}, {"eval_loss", 4}});
  const EvaluationCourse read(t, rules, rows);
  EXPECT_EQ(live.plateau().reductions, 1);
  EXPECT_EQ(read.plateau().reductions, 1);
  EXPECT_EQ(live.bad_evaluations(), read.bad_evaluations());
}

TEST(EvaluationCourse, FollowsFromARecordedConfig) {
  const Json rows = logged({3, 2.9, 2.8});
  const Json values{{"early_stopping_patience", {{"value", 2}}}, {"early_stopping_threshold", {{"value", 0.5}}}};
  EXPECT_TRUE(recorded_course(values, rows).ends_run());
  EXPECT_FALSE(recorded_course({{"early_stopping_patience", {{"value", 2}}}}, rows).ends_run());
  EXPECT_FALSE(recorded_course({}, rows).ends_run());
}

TEST(EvaluationCourse, SaysWhyTheRunEnds) {
  TrainingSection t = stopping_after(2);
  t.early_stopping_threshold = 0.25;
  EXPECT_EQ(
      EvaluationCourse(t, {}, logged({3, 4, 2.9})).reason(),
      "2 evaluations in a row did not improve on the best one before by more than 0.25 (best: eval_loss 2.9000, step "
      "3)");
  EXPECT_EQ(EvaluationCourse(stopping_after(1), {}, logged({3, 4})).reason(),
            "1 evaluation did not improve on eval_loss 3.0000 (step 1)");
  EXPECT_THAT(EvaluationCourse(stopping_after(2), {}, logged({std::nan(""), std::nan(""), std::nan("")})).reason(),
              HasSubstr("no eval_loss"));
}

TEST(EvaluationCourse, IsSavedAsTransformersSavesItsCallback) {
  const TrainingSection t = stopping_after(2);
  const EvaluationCourse going(t, {}, logged({3, 4})), ended(t, {}, logged({3, 4, 5}));
  EXPECT_EQ(stateful_callbacks(t, going).dump(),
            R"({"EarlyStoppingCallback":{"args":{"early_stopping_patience":2,"early_stopping_threshold":0.0},)"
            R"("attributes":{"early_stopping_patience_counter":1}}})");
  EXPECT_FALSE(shows_early_end(stateful_callbacks(t, going)));
  EXPECT_TRUE(shows_early_end(stateful_callbacks(t, ended)));
  EXPECT_EQ(stateful_callbacks({}, ended), Json::object());
  EXPECT_FALSE(shows_early_end(Json::object()));
}

}  // namespace
}  // namespace qtrain
