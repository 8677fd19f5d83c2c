// How `qtrain init` chooses evaluations and checkpoints, and what it says about them.
#include "app/init/events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace qtrain::init {
namespace {

constexpr const char* kBest = "; the best checkpoint is the result";

struct Case {
  Overrides given;
  RunFacts run;
  Json chosen;  ///< all keys and values
  std::map<std::string, std::string> reasons;
};

const RunFacts kEvaluated{.evaluates = true, .updates = 100}, kPlain{.evaluates = false, .updates = 100};

TEST(InitEvents, FitEachOtherAndWhatIsGiven) {
  const std::vector<Case> cases{
      {{},
       kEvaluated,
       {{"eval_strategy", "steps"},
        {"eval_steps", 0.2},
        {"save_strategy", "steps"},
        {"save_steps", 0.2},
        {"save_total_limit", 1},
        {"load_best_model_at_end", true}},
       {{"eval_strategy", std::string("5 times a run") + kBest}}},
      {{},
       kPlain,
       {{"save_strategy", "steps"}, {"save_steps", 0.2}, {"save_total_limit", 1}},
       {{"save_strategy", "5 times a run; only the newest checkpoint stays"}}},
      {{{"save_total_limit", "3"}},
       kPlain,
       {{"save_strategy", "steps"}, {"save_steps", 0.2}, {"save_total_limit", 3}},
       {{"save_strategy", "5 times a run"}}},
      {{{"save_strategy", "epoch"}},
       kEvaluated,
       {{"eval_strategy", "epoch"},
        {"save_strategy", "epoch"},
        {"save_total_limit", 1},
        {"load_best_model_at_end", true}},
       {{"eval_strategy", std::string("after each epoch, as checkpoints are saved") + kBest}}},
      {{{"save_strategy", "epoch"}, {"eval_steps", "10"}},
       kEvaluated,
       {{"eval_strategy", "steps"}, {"eval_steps", 10}, {"save_strategy", "epoch"}, {"save_total_limit", 1}},
       {{"eval_strategy", "at the given eval_steps"}}},
      {{{"eval_strategy", "epoch"}},
       kEvaluated,
       {{"eval_strategy", "epoch"},
        {"save_strategy", "epoch"},
        {"save_total_limit", 1},
        {"load_best_model_at_end", true}},
       {{"save_strategy", std::string("where it is evaluated") + kBest}}},
      {{{"eval_strategy", "epoch"}, {"save_steps", "50"}},
       kEvaluated,
       {{"eval_strategy", "epoch"}, {"save_strategy", "steps"}, {"save_steps", 50}, {"save_total_limit", 1}},
       {{"save_strategy", ""}}},
      {{{"save_strategy", "no"}},
       kEvaluated,
       {{"eval_strategy", "steps"}, {"eval_steps", 0.2}, {"save_strategy", "no"}},
       {{"eval_strategy", "5 times a run"}}},
      {{{"save_strategy", "best"}},
       kEvaluated,
       {{"eval_strategy", "steps"},
        {"eval_steps", 0.2},
        {"save_strategy", "best"},
        {"save_total_limit", 1},
        {"load_best_model_at_end", true}},
       {{"eval_strategy", std::string("5 times a run") + kBest}}},
      {{{"eval_steps", "10"}, {"save_steps", "50"}},
       kEvaluated,
       {{"eval_strategy", "steps"},
        {"eval_steps", 10},
        {"save_strategy", "steps"},
        {"save_steps", 50},
        {"save_total_limit", 1},
        {"load_best_model_at_end", true}},
       {{"eval_strategy", std::string("at the given eval_steps") + kBest}}},
      {{{"eval_steps", "10"}, {"save_steps", "15"}},
       kEvaluated,
       {{"eval_strategy", "steps"},
        {"eval_steps", 10},
        {"save_strategy", "steps"},
        {"save_steps", 15},
        {"save_total_limit", 1}},
       {{"eval_strategy", "at the given eval_steps"}}},
      {{{"eval_steps", "0.1"}, {"save_steps", "10"}},
       kEvaluated,
       {{"eval_strategy", "steps"},
        {"eval_steps", 0.1},
        {"save_strategy", "steps"},
        {"save_steps", 10},
        {"save_total_limit", 1}},
       {{"eval_strategy", "at the given eval_steps"}}},
      {{{"save_steps", "50"}},
       kEvaluated,
       {{"eval_strategy", "steps"},
        {"eval_steps", 50},
        {"save_strategy", "steps"},
        {"save_steps", 50},
        {"save_total_limit", 1},
        {"load_best_model_at_end", true}},
       {{"eval_strategy", std::string("where checkpoints are saved") + kBest}}},
      {{{"save_steps", "50"}},
       kPlain,
       {{"save_strategy", "steps"}, {"save_steps", 50}, {"save_total_limit", 1}},
       {{"save_strategy", "at the given save_steps; only the newest checkpoint stays"}}},
      {{{"load_best_model_at_end", "false"}},
       kEvaluated,
       {{"eval_strategy", "steps"},
        {"eval_steps", 0.2},
        {"save_strategy", "steps"},
        {"save_steps", 0.2},
        {"save_total_limit", 1},
        {"load_best_model_at_end", false}},
       {{"eval_strategy", "5 times a run"}}},
      {{{"eval_strategy", "no"}},
       kEvaluated,
       {{"eval_strategy", "no"}, {"save_strategy", "steps"}, {"save_steps", 0.2}, {"save_total_limit", 1}},
       {{"eval_strategy", "as given"}, {"save_strategy", "5 times a run; only the newest checkpoint stays"}}}};
  for (const Case& c : cases) {
    Choices choices(c.given, {});
    choose_intervals(choices, c.run);
    std::string given;
    for (const auto& [key, value] : c.given) given += key + "=" + value + " ";
    EXPECT_EQ(choices.document(), c.chosen) << given;
    for (const auto& [key, said] : c.reasons) {
      const auto choice = std::ranges::find(choices.all(), key, &Choice::key);
      ASSERT_NE(choice, choices.all().end()) << given << key;
      EXPECT_EQ(choice->reason, said) << given << key;
    }
  }
}

TEST(InitEvents, AreCounted) {
  for (const auto& [updates, said] : std::vector<std::pair<std::int64_t, const char*>>{{1, "once a run"},
                                                                                       {3, "3 times a run"},
                                                                                       {6, "3 times a run"},
                                                                                       {12, "4 times a run"},
                                                                                       {20, "5 times a run"}}) {
    Choices choices({}, {});
    choose_intervals(choices, {.evaluates = true, .updates = updates});
    EXPECT_EQ(choices.all().front().reason, said + std::string(kBest)) << updates;
  }
}

}  // namespace
}  // namespace qtrain::init
