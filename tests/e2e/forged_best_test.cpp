// False claims about the evaluations and the best checkpoint of a run, with all manifests rewritten to match.
#include "tests/e2e/tampered_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class ForgedBest : public TamperedRun {
 protected:
  /// Every step has a checkpoint and an evaluation; the first evaluation is the best one.
  void train_with_best_first() {
    Json c = config();
    c.update({{"max_steps", 8},
              {"save_steps", 1},
              {"eval_steps", 1},
              {"warmup_steps", 0},
              {"load_best_model_at_end", true},
              {"metric_for_best_model", "eval_loss"},
              {"greater_is_better", true}});
    train_ok(folder_.path(), c);
    ASSERT_EQ(state_of(output())["best_global_step"], 1);
  }
  static Json state_of(const fs::path& folder) { return read_json(folder / "trainer_state.json"); }
  fs::path checkpoint(int step) const { return output() / ("checkpoint-" + std::to_string(step)); }

  /// Changes what the result and the checkpoints from `step` on say about the best checkpoint.
  void claim(int step, const std::string& in_training, const std::string& in_trainer, const Json& is) const {
    for (int s = step; s <= 8; ++s) {
      Json training = read_json(checkpoint(s) / "training_state.json");
      training[in_training] = is;
      write_document(checkpoint(s) / "training_state.json", training);
    }
    for (int s = step; s <= 9; ++s) {
      const fs::path folder = s == 9 ? output() : checkpoint(s);
      Json trainer = state_of(folder);
      trainer[in_trainer] = is;
      write_document(folder / "trainer_state.json", trainer);
      seal(folder);
    }
  }
  void expect_refused(const std::string& says) const {
    const Outcome o = verify({"--statement", at("s.json").string()});
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    EXPECT_THAT(o.out, HasSubstr(says));
    EXPECT_FALSE(fs::exists(at("s.json")));
  }
};

// Otherwise, the repeated last step would load the result's weights from this folder, although no step leads to it.
TEST_F(ForgedBest, WeightsOfAFolderThatIsNoCheckpointAreRefused) {
  train_with_best_first();
  fs::copy(output(), at("kept"), fs::copy_options::recursive);
  for (const std::string name : {"elsewhere", "checkpoint-1.superseded", "checkpoint-1.tmp", "checkpoint-01", "runs"}) {
    SCOPED_TRACE(name);
    fs::copy(checkpoint(1), output() / name, fs::copy_options::recursive);
    std::string bytes = bytes_of(output() / name / "model.safetensors");
    bytes[bytes.size() - 2] ^= 1;
    for (const fs::path& folder : {output() / name, output()}) {
      write_file(folder / "model.safetensors", bytes);
      seal(folder);
    }
    claim(2, "best_checkpoint", "best_model_checkpoint", (output() / name).string());
    expect_refused("is not a checkpoint of this run");
    fs::remove_all(output());
    fs::copy(at("kept"), output(), fs::copy_options::recursive);
  }
  EXPECT_EQ(verify({"--statement", at("s.json").string()}).code, 0);
}

TEST_F(ForgedBest, ALossThatWasNotLoggedIsRefused) {
  train_with_best_first();
  claim(2, "best_metric", "best_metric", 99.5);
  expect_refused("best_metric is 99.5, which was not logged for step 1");
}

TEST_F(ForgedBest, RecordsOfACheckpointHaveTheSameBest) {
  train_with_best_first();
  Json training = read_json(checkpoint(5) / "training_state.json");
  training["best_checkpoint"] = checkpoint(3).string();
  write_document(checkpoint(5) / "training_state.json", training);
  seal(checkpoint(5));
  expect_refused("in training_state.json");
}

// A checkpoint may be saved before an evaluation that is due, but a result may not, whatever other files say.
TEST_F(ForgedBest, AResultHasItsLastEvaluation) {
  train_ok(folder_.path(), config());
  const auto is_last = [](const Json& row) { return row.contains("eval_loss") && row["step"] == 4; };
  std::vector<Json> metrics = read_jsonl(output() / "metrics.jsonl");
  ASSERT_EQ(std::erase_if(metrics, is_last), 1u);
  write_file(output() / "metrics.jsonl", jsonl(metrics));
  for (const fs::path& folder : {output(), checkpoint(4)}) {
    Json state = state_of(folder);
    ASSERT_EQ(std::erase_if(state["log_history"].get_ref<Json::array_t&>(), is_last), 1u);
    write_document(folder / "trainer_state.json", state);
  }
  Json training = read_json(checkpoint(4) / "training_state.json");
  training["events_pending"] = true;
  write_document(checkpoint(4) / "training_state.json", training);
  seal(checkpoint(4));
  write_document(output() / "training_state.json", training);
  seal_what_lies_beside();
  expect_refused("trainer_state.json, log_history");
}

}  // namespace
}  // namespace qtrain::e2e
