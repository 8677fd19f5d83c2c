// Runs that end early because their evaluations no longer improve.
#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kMaxSteps = 30, kPatience = 3;

class EarlyStopping : public VerifiedRun {
 protected:
  /// A run whose loss soon gets worse.
  Json worsening() const {
    Json c = config();
    c.update({{"max_steps", kMaxSteps},
              {"learning_rate", 0.3},
              {"warmup_steps", 8},
              {"max_grad_norm", 0},
              {"eval_steps", 1},
              {"save_steps", 1},
              {"save_total_limit", 2},
              {"load_best_model_at_end", true},
              {"early_stopping_patience", kPatience}});
    return c;
  }
  static int last_step(const fs::path& run) { return read_json(run / "trainer_state.json").at("global_step"); }
  /// The step whose evaluation was the best.
  static int best_step(const fs::path& run) {
    const auto rows = history(run, "eval_loss");
    const auto losses = column(rows, "eval_loss");
    return rows.at(static_cast<std::size_t>(std::ranges::min_element(losses) - losses.begin())).at("step");
  }
  /// Trains until the step, and then on.
  void train_in_two(const Json& c, int step) const {
    write_file(at("run.json"), dump_json(c));
    EXPECT_EQ(qtrain({.words = {at("run.json").string(), "--stop_after", std::to_string(step)}}).code, 75);
    qtrain_ok({.words = {at("run.json").string()}});
  }
};

TEST_F(EarlyStopping, EndsTheRunAtTheBestCheckpoint) {
  const Outcome run = train_ok(folder_.path(), worsening());
  const int best = best_step(output()), last = last_step(output());
  ASSERT_LT(last, kMaxSteps);
  EXPECT_EQ(last, best + kPatience);
  const std::string reason = "3 evaluations in a row did not improve on eval_loss";
  EXPECT_THAT(run.err, AllOf(HasSubstr("the run ends early, after step " + std::to_string(last) + " of 30: " + reason),
                             HasSubstr("(step " + std::to_string(best) + ") (early_stopping_patience)")));
  EXPECT_THAT(run.out, HasSubstr("; ended early at step " + std::to_string(last)));
  EXPECT_EQ(bytes_of(output() / ("checkpoint-" + std::to_string(best)) / "model.safetensors"),
            bytes_of(output() / "model.safetensors"));
  EXPECT_THAT(read_jsonl(output() / "metrics.jsonl").back().at("ended_early").get<std::string>(), HasSubstr(reason));
  EXPECT_THAT(read_json(output() / "train_results.json").at("ended_early").get<std::string>(), HasSubstr(reason));
  const Json state = read_json(output() / "trainer_state.json");
  EXPECT_EQ(state.at("max_steps"), kMaxSteps);
  EXPECT_EQ(
      state.at("/stateful_callbacks/EarlyStoppingCallback/attributes/early_stopping_patience_counter"_json_pointer),
      kPatience);
  EXPECT_THAT(bytes_of(output() / "report.html"), HasSubstr("ended early at step " + std::to_string(last)));
  const std::string said = qtrain_ok({.words = {"report", output().string(), "--json"}}).out;
  EXPECT_EQ(parse_json(said, "report").at("state"), "done");
}

TEST_F(EarlyStopping, IsOverWhenItIsStartedAgain) {
  train_ok(folder_.path(), worsening());
  const int last = last_step(output());
  const std::string weights = bytes_of(output() / "model.safetensors"),
                    record = bytes_of(output() / "resolved_config.json");
  const Outcome again = train_ok(folder_.path(), worsening());
  EXPECT_THAT(again.out, AllOf(HasSubstr("the run ended early at step " + std::to_string(last) + " of 30"),
                               Not(HasSubstr("done:"))));
  EXPECT_EQ(last_step(output()), last);
  EXPECT_EQ(bytes_of(output() / "model.safetensors"), weights);
  EXPECT_EQ(bytes_of(output() / "resolved_config.json"), record);
  EXPECT_EQ(verify().code, 0);
}

TEST_F(EarlyStopping, GoesOnWithMorePatience) {
  train_ok(folder_.path(), worsening());
  const int last = last_step(output());
  Json patient = worsening();
  patient["early_stopping_patience"] = kPatience + 2;
  train_ok(folder_.path(), patient);
  EXPECT_EQ(last_step(output()), last + 2);
}

TEST_F(EarlyStopping, CountsOnWhereARunWasStopped) {
  train_ok(folder_.path(), worsening());
  const int last = last_step(output());
  const std::string weights = bytes_of(output() / "model.safetensors");
  for (const int step : {last - 1, last - 2, last - kPatience}) {
    Json c = worsening();
    c["output_dir"] = at("parts").string();
    fs::remove_all(at("parts"));
    train_in_two(c, step);
    EXPECT_EQ(last_step(at("parts")), last) << step;
    EXPECT_EQ(bytes_of(at("parts") / "model.safetensors"), weights) << step;
    EXPECT_EQ(history_without_times(at("parts")), history_without_times(output())) << step;
  }
}

// A run that was stopped may be over by the rules of the next start, which then are those of the result.
TEST_F(EarlyStopping, IsRecordedWithTheRulesThatEndedTheRun) {
  const std::vector<Json> rules{{{"early_stopping_threshold", 100}}, {{"early_stopping_patience", 1}}};
  for (const Json& rule : rules) {
    SCOPED_TRACE(dump_json(rule));
    Json c = worsening();
    c["save_total_limit"] = nullptr;
    fs::remove_all(output());
    write_file(at("run.json"), dump_json(c));
    train_ok(folder_.path(), c);
    const int stop = best_step(output()) + 1;
    fs::remove_all(output());
    EXPECT_EQ(qtrain({.words = {at("run.json").string(), "--stop_after", std::to_string(stop)}}).code, 75);
    c.update(rule);
    const Outcome run = train_ok(folder_.path(), c);
    EXPECT_EQ(last_step(output()), stop) << run.err;
    const Json recorded = read_json(output() / "resolved_config.json").at("values");
    for (const auto& [key, value] : rule.items()) EXPECT_EQ(recorded.at(key).at("value"), value);
    const Outcome verified = verify();
    EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  }
}

// Where no step is left to do, a start changes nothing.
TEST_F(EarlyStopping, StaysAsItWasIfItIsStartedAgainWithOtherRules) {
  Json c = worsening();
  c["save_total_limit"] = nullptr;
  train_ok(folder_.path(), c);
  const std::vector<Json> others{{{"early_stopping_patience", 2}},
                                 {{"early_stopping_threshold", 0.5}},
                                 {{"max_steps", last_step(output())}},
                                 {{"save_steps", 2}}};
  const auto files = [&] {
    std::string all;
    for (const char* name : {"trainer_state.json", "train_results.json", "resolved_config.json", "model.safetensors"})
      all += sha256_of_file(output() / name);
    return all;
  };
  const std::string before = files();
  for (const Json& other : others) {
    SCOPED_TRACE(dump_json(other));
    Json again = c;
    again.update(other);
    train_ok(folder_.path(), again);
    EXPECT_EQ(files(), before);
  }
  const Outcome verified = verify();
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  fs::remove(output() / "model.safetensors");  // a result that is not whole is written again
  train_ok(folder_.path(), c);
  EXPECT_EQ(verify().code, 0);
}

TEST_F(EarlyStopping, TheReasonIsVerified) {
  train_ok(folder_.path(), worsening());
  for (const char* name : {"metrics.jsonl", "train_results.json"})
    change_text(output() / name, "3 evaluations in a row", "9 evaluations in a row");
  Json results = read_json(output() / "train_results.json");
  results["metrics_jsonl"] = {{"bytes", fs::file_size(output() / "metrics.jsonl")},
                              {"sha256", sha256_of_file(output() / "metrics.jsonl")}};
  write_document(output() / "train_results.json", results);
  seal(output());
  const Outcome verified = verify({"--steps", "0"});
  EXPECT_NE(verified.code, 0);
  EXPECT_THAT(verified.out, HasSubstr("by the logged evaluations it is \"3 evaluations in a row"));
}

TEST_F(EarlyStopping, IsVerifiedAndReproduced) {
  Json c = worsening();
  c.update({{"save_steps", 2}, {"save_total_limit", nullptr}});
  train_ok(folder_.path(), c);
  ASSERT_LT(last_step(output()), kMaxSteps);
  const Outcome verified = verify();
  EXPECT_EQ(verified.code, 0) << verified.out << verified.err;
  qtrain_ok({.words = {"reproduce", output().string(), "--output", at("again").string()}});
  EXPECT_EQ(bytes_of(at("again") / "model.safetensors"), bytes_of(output() / "model.safetensors"));
}

TEST_F(EarlyStopping, EndsAllRanksTogether) {
  Json c = worsening();
  c["deterministic_reduce"] = true;
  train_ok(folder_.path(), c);
  const int last = last_step(output());
  const std::string weights = bytes_of(output() / "model.safetensors");
  c.update({{"nproc", 2}, {"gradient_accumulation_steps", 1}, {"output_dir", at("ranks").string()}});
  train_ok(folder_.path(), c);
  EXPECT_EQ(last_step(at("ranks")), last);
  EXPECT_EQ(bytes_of(at("ranks") / "model.safetensors"), weights);
}

// A checkpoint of the last step is saved even where none is due, so that the run is known to be over.
TEST_F(EarlyStopping, SavesItsLastStep) {
  Json c = worsening();
  c.update({{"load_best_model_at_end", false}, {"save_steps", 100}});
  const Outcome run = train_ok(folder_.path(), c);
  const int last = last_step(output());
  ASSERT_LT(last, kMaxSteps);
  EXPECT_THAT(checkpoint_names(output()), ::testing::ElementsAre("checkpoint-" + std::to_string(last)));
  EXPECT_THAT(run.err, HasSubstr("the result has the weights of the last step"));
}

// An evaluation before the first step is not one of those that the best checkpoint is chosen from, as in transformers.
TEST_F(EarlyStopping, TheEvaluationAtTheStartIsNotTheBest) {
  Json c = worsening();
  c.update({{"eval_on_start", true}, {"learning_rate", 3}, {"warmup_steps", 0}});
  train_ok(folder_.path(), c);
  const auto losses = column(history(output(), "eval_loss"), "eval_loss");
  ASSERT_EQ(std::ranges::min_element(losses), losses.begin()) << "the start was meant to be better";
  const Json state = read_json(output() / "trainer_state.json");
  EXPECT_GE(state.at("best_global_step"), 1);
  EXPECT_GT(state.at("best_metric"), losses.front());
}

}  // namespace
}  // namespace qtrain::e2e
