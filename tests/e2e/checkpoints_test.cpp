// Checkpoints that are saved again, and such that are not what they should be.
#include "core/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class Checkpoints : public ::testing::Test {
 protected:
  /// A run of two steps with a checkpoint after each.
  Json config(Json more = Json::object()) const {
    Json config = tiny_run(output_);
    more.update({{"max_steps", 2}, {"save_strategy", "steps"}, {"save_steps", 1}});
    config.update(more);
    return config;
  }
  /// Lets the second checkpoint say something else.
  void change(const char* key, const Json& value) const {
    Json state = read_json(newest_ / "training_state.json");
    state[key] = value;
    write_file(newest_ / "training_state.json", dump_json(state));
    reseal(newest_, "training_state.json");
  }

  TempFolder folder_;
  fs::path output_ = folder_ / "out", newest_ = output_ / "checkpoint-2";
};

TEST_F(Checkpoints, are_replaced_by_those_of_the_same_step) {
  train_ok(folder_.path(), config());
  change("events_pending", true);
  EXPECT_THAT(train_ok(folder_.path(), config()).err, HasSubstr("saved " + newest_.string()));
  EXPECT_EQ(read_json(newest_ / "training_state.json").at("events_pending"), false);
  qtrain_ok({.words = {"inspect", newest_.string() + "/", "--verify"}});
  for (const char* ending : {".tmp", ".removed"}) EXPECT_FALSE(fs::exists(newest_.string() + ending)) << ending;
}

TEST_F(Checkpoints, with_values_of_other_types_are_passed_over) {
  train_ok(folder_.path(), config());
  const std::string whole = bytes_of(newest_ / "training_state.json");
  for (const char* key : {"format_version", "resumable", "updates", "identity", "step"}) {
    write_file(newest_ / "training_state.json", whole);
    change(key, "1");
    const Outcome outcome = train_ok(folder_.path(), config());
    EXPECT_THAT(outcome.err, HasSubstr("checkpoint-2 is damaged")) << key;
    EXPECT_THAT(outcome.err, HasSubstr("at step 1 of 2")) << key;
  }
}

TEST_F(Checkpoints, that_are_damaged_do_not_become_the_final_model) {
  const Json evaluated{{"eval_dataset_name", (kGoldens / "curves/llama_full/data.jsonl").string()},
                       {"eval_strategy", "steps"},
                       {"eval_steps", 1},
                       {"load_best_model_at_end", true},
                       {"greater_is_better", true},
                       {"metric_for_best_model", "eval_loss"}};
  train_ok(folder_.path(), config(evaluated));
  const fs::path best = read_json(output_ / "trainer_state.json").at("best_model_checkpoint").get<std::string>();
  ASSERT_EQ(best.filename(), "checkpoint-1");
  const std::string last = bytes_of(newest_ / "model.safetensors");
  EXPECT_NE(bytes_of(output_ / "model.safetensors"), last);
  std::string damaged = bytes_of(best / "model.safetensors");
  damaged.back() ^= 1;
  write_file(best / "model.safetensors", damaged);
  EXPECT_THAT(train_ok(folder_.path(), config(evaluated)).err, HasSubstr("is that of the last step, not the best one"));
  EXPECT_TRUE(bytes_of(output_ / "model.safetensors") == last);
}

TEST_F(Checkpoints, are_what_has_hashes_to_check) {
  const Outcome outcome = qtrain({.words = {"inspect", (kGoldens / "llama_gqa3_tied").string(), "--verify"}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("there are no hashes to check"));
}

}  // namespace
}  // namespace qtrain::e2e
