// Checkpoints of a different run: which differences are refused, which are reported, and which do not matter.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

/// A finished LoRA run with its own model, rows and tokenizer.
class ResumeOfAnother : public ::testing::Test {
 protected:
  ResumeOfAnother() {
    fs::copy(kGoldens / "llama_gqa3_tied", folder_ / "model", fs::copy_options::recursive);
    fs::copy(kGoldens / "curves/cosine/data.jsonl", folder_ / "rows.jsonl");
    Json config = tiny_lora_run(folder_ / "output");
    config.update({{"model_name_or_path", (folder_ / "model").string()},
                   {"dataset_name", (folder_ / "rows.jsonl").string()},
                   {"max_steps", 6},
                   {"save_strategy", "steps"},
                   {"save_steps", 6}});
    train_ok(folder_.path(), config);
  }
  Outcome with(const Json& changes) const {
    std::vector<std::string> words{(folder_ / "config.json").string()};
    for (const std::string& word : overrides(changes)) words.push_back(word);
    return qtrain({.words = words});
  }

  TempFolder folder_;
};

TEST_F(ResumeOfAnother, IsRefusedByTheKeysThatDiffer) {
  struct Case {
    Json changes;
    std::string said;
  };
  const std::vector<Case> cases{
      {{{"seed", 7}}, "seed = 42, the config says 7"},
      {{{"data_seed", 7}}, "data_seed = 42, the config says 7"},
      {{{"gradient_accumulation_steps", 1}}, "gradient_accumulation_steps = 2, the config says 1"},
      {{{"max_length", 5}}, "max_length = 1024, the config says 5"},
      {{{"lora_alpha", 64}, {"use_rslora", true}},
       "lora_alpha = 8.0, the config says 64.0; use_rslora = false, the config says true"},
      {{{"lora_dropout", 0}}, "lora_dropout = 0.2, the config says 0.0"}};
  for (const Case& c : cases) {
    const Outcome outcome = with(c.changes);
    EXPECT_EQ(outcome.code, 2) << c.said << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("the checkpoint was written with " + c.said));
  }
}

TEST_F(ResumeOfAnother, LearningRateAndLengthAreTold) {
  const Outcome outcome = with({{"learning_rate", 0.001}, {"max_steps", 8}, {"gradient_checkpointing", true}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("resumed with max_steps 8 (was 6), learning_rate 0.001 (was 0.005)\n"));
}

TEST_F(ResumeOfAnother, MovedFilesAreTheSameAndChangedOnesAreNot) {
  fs::rename(folder_ / "model", folder_ / "moved");
  fs::rename(folder_ / "rows.jsonl", folder_ / "moved.jsonl");
  const Json moved{{"model_name_or_path", (folder_ / "moved").string()},
                   {"dataset_name", (folder_ / "moved.jsonl").string()},
                   {"max_steps", 7}};
  EXPECT_EQ(with(moved).code, 0);

  fs::rename(folder_ / "moved", folder_ / "model");
  std::string rows = bytes_of(folder_ / "moved.jsonl");
  write_file(folder_ / "rows.jsonl", rows.substr(rows.find('\n') + 1));
  Outcome outcome = with({{"max_steps", 9}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("rows.jsonl"));

  write_file(folder_ / "rows.jsonl", rows);
  std::string weights = bytes_of(folder_ / "model/model.safetensors");
  weights[weights.size() - 1] ^= 1;
  write_file(folder_ / "model/model.safetensors", weights);
  outcome = with({{"max_steps", 9}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("different initial weights: model.safetensors"));
}

TEST_F(ResumeOfAnother, VersionIsRefused) {
  const fs::path newest = folder_ / "output/checkpoint-6";
  Json state = read_json(newest / "training_state.json");
  state["format_version"] = 1;
  write_file(newest / "training_state.json", dump_json(state));
  reseal(newest, "training_state.json");
  const Outcome outcome = with({{"max_steps", 9}});
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("the checkpoint has format version 1, this program reads 2"));
}

}  // namespace
}  // namespace qtrain::e2e
