// Checkpoints that are saved again, and ones that are not valid.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class Checkpoints : public ::testing::Test {
 protected:
  /// A run of two steps with a checkpoint after each.
  Json config(const Json& more = Json::object()) const {
    Json config = tiny_run(output_);
    config.update({{"max_steps", 2}, {"save_strategy", "steps"}, {"save_steps", 1}});
    config.update(more);
    return config;
  }
  /// Changes a value in the second checkpoint.
  void change(const char* key, const Json& value) const {
    Json state = read_json(newest_ / "training_state.json");
    state[key] = value;
    write_file(newest_ / "training_state.json", dump_json(state));
    reseal(newest_, "training_state.json");
  }

  TempFolder folder_;
  fs::path output_ = folder_ / "out", newest_ = output_ / "checkpoint-2";
};

TEST_F(Checkpoints, AreReplacedByThoseOfTheSameStep) {
  train_ok(folder_.path(), config());
  change("events_pending", true);
  EXPECT_THAT(train_ok(folder_.path(), config()).err, HasSubstr("saved " + newest_.string()));
  EXPECT_EQ(read_json(newest_ / "training_state.json").at("events_pending"), false);
  qtrain_ok({.words = {"inspect", newest_.string() + "/", "--verify"}});
  for (const char* ending : {".tmp", ".removed"}) EXPECT_FALSE(fs::exists(newest_.string() + ending)) << ending;
}

TEST_F(Checkpoints, WithValuesOfOtherTypesArePassedOver) {
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

TEST_F(Checkpoints, ThatAreDamagedDoNotBecomeTheFinalModel) {
  const Json evaluated{{"eval_dataset_name", (kGoldens / "curves/llama_full/data.jsonl").string()},
                       {"eval_strategy", "steps"},
                       {"eval_steps", 1},
                       {"load_best_model_at_end", true},
                       {"greater_is_better", true},
                       {"metric_for_best_model", "eval_loss"}};
  train_ok(folder_.path(), config(evaluated));
  const fs::path best = read_json(output_ / "trainer_state.json").at("best_model_checkpoint").get<std::string>();
  ASSERT_EQ(best.filename(), "checkpoint-1");
  const std::string last = bytes_of(newest_ / "model.safetensors"), result = bytes_of(output_ / "model.safetensors");
  EXPECT_NE(result, last);
  std::string damaged = bytes_of(best / "model.safetensors");
  damaged.back() ^= 1;
  write_file(best / "model.safetensors", damaged);
  train_ok(folder_.path(), config(evaluated));
  EXPECT_TRUE(bytes_of(output_ / "model.safetensors") == result) << "a finished result stays";
  fs::remove(output_ / "model.safetensors");
  EXPECT_THAT(train_ok(folder_.path(), config(evaluated)).err,
              HasSubstr("is from the last step, not from the best checkpoint"));
  EXPECT_TRUE(bytes_of(output_ / "model.safetensors") == last);
}

/// The files in a folder and its subfolders.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

void flip_a_bit(const fs::path& file) {
  std::string bytes = bytes_of(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_file(file, bytes);
}

TEST_F(Checkpoints, WithAFlippedBitInAnyFileArePassedOver) {
  write_untrained_model(folder_ / "model");
  give_random_weights(folder_ / "model");
  fs::create_directories(folder_ / "model/additional_chat_templates");
  write_file(folder_ / "model/additional_chat_templates/tools.jinja", "with tools");
  for (const Json& kind : {Json::object(), Json{{"use_peft", true}, {"lora_target_modules", "all-linear"}}}) {
    Json run = config({{"model_name_or_path", (folder_ / "model").string()}});
    run.update(kind);
    fs::remove_all(output_);
    train_ok(folder_.path(), run);
    qtrain_ok({.words = {"inspect", newest_.string(), "--verify"}});
    const auto files = files_of(newest_);
    EXPECT_THAT(files, ::testing::IsSupersetOf({newest_ / "chat_template.jinja", newest_ / "tokenizer.json",
                                                newest_ / "additional_chat_templates/tools.jinja"}));
    for (const fs::path& file : files) {
      flip_a_bit(file);
      EXPECT_EQ(qtrain({.words = {"inspect", newest_.string(), "--verify"}}).code, 3) << file;
      const Outcome outcome = train_ok(folder_.path(), run);
      EXPECT_THAT(outcome.err, HasSubstr("checkpoint-2 is damaged")) << file;
      EXPECT_THAT(outcome.err, HasSubstr("at step 1 of 2")) << file;
    }
  }
}

TEST_F(Checkpoints, UnderTheNamesOfOthersArePassedOver) {
  train_ok(folder_.path(), config({{"max_steps", 3}}));
  fs::rename(newest_, output_ / "x");
  fs::rename(output_ / "checkpoint-3", newest_);
  fs::rename(output_ / "x", output_ / "checkpoint-3");
  const Outcome outcome = train_ok(folder_.path(), config({{"max_steps", 3}}));
  for (const char* text :
       {"checkpoint-2: its manifest is of step 3", "checkpoint-3: its manifest is of step 2", "at step 1 of 3"})
    EXPECT_THAT(outcome.err, HasSubstr(text));
}

TEST_F(Checkpoints, OfWhichAPartIsOfAnotherStepArePassedOver) {
  train_ok(folder_.path(), config());
  for (const char* part : {"training_state.json", "trainer_state.json"}) {
    fs::copy_file(output_ / "checkpoint-1" / part, newest_ / part, fs::copy_options::overwrite_existing);
    reseal(newest_, part);
    const Outcome outcome = train_ok(folder_.path(), config());
    EXPECT_THAT(outcome.err, HasSubstr(std::string(part) + ": is of step 1, but the manifest is of step 2"));
    EXPECT_THAT(outcome.err, HasSubstr("at step 1 of 2"));
  }
}

TEST_F(Checkpoints, ThatAreAllDamagedEndTheRunWithWhatToDo) {
  train_ok(folder_.path(), config());
  const std::vector<std::string> words{(folder_ / "config.json").string()};
  for (const char* name : {"checkpoint-1", "checkpoint-2"}) flip_a_bit(output_ / name / "model.safetensors");
  Outcome outcome = qtrain({.words = words});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err,
              HasSubstr("no checkpoint is intact; name a different one with --resume DIR, or start over with "
                        "--resume never"));
  fs::remove_all(newest_);
  outcome = qtrain({.words = words});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("start over with --resume never"));
  train_ok(folder_.path(), config(), {"--resume", "never"});
}

TEST_F(Checkpoints, ThatWerePassedOverNeitherCountNorGo) {
  train_ok(folder_.path(), config({{"max_steps", 4}}));
  fs::remove_all(output_ / "checkpoint-1");
  flip_a_bit(output_ / "checkpoint-4/model.safetensors");
  const std::string damaged = bytes_of(output_ / "checkpoint-4/model.safetensors");
  for (const int limit : {2, 1}) {  // checkpoints 2 and 3 are intact
    train_ok(folder_.path(), config({{"max_steps", 3}, {"save_total_limit", limit}}));
    EXPECT_EQ(fs::exists(newest_), limit == 2);
    EXPECT_TRUE(fs::exists(output_ / "checkpoint-3"));
    EXPECT_TRUE(bytes_of(output_ / "checkpoint-4/model.safetensors") == damaged);
  }
  train_ok(folder_.path(), config({{"max_steps", 5}, {"save_total_limit", 2}}));  // checkpoint 4 is saved again
  for (const char* name : {"checkpoint-4", "checkpoint-5"})
    qtrain_ok({.words = {"inspect", (output_ / name).string(), "--verify"}});
  EXPECT_FALSE(fs::exists(output_ / "checkpoint-3"));
}

TEST_F(Checkpoints, ThatAreNamedAndCannotBeReadAreNotCalledTheOnlyOnes) {
  train_ok(folder_.path(), config());
  flip_a_bit(newest_ / "model.safetensors");
  const auto resume = [&](const fs::path& from) {
    const Outcome outcome = qtrain({.words = {(folder_ / "config.json").string(), "--resume", from.string()}});
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.err.find("only checkpoint"), std::string::npos) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("--resume auto uses the newest intact checkpoint of output_dir"));
    return outcome.err;
  };
  EXPECT_THAT(resume(newest_), HasSubstr("model.safetensors: is damaged: its SHA-256 does not match"));
  const std::string choice = "\n  did you mean \"" + (output_ / "checkpoint-1").string() +
                             "\"?\n  available: checkpoint-1, checkpoint-2 (damaged)";
  EXPECT_THAT(resume(output_), HasSubstr("it does not contain training_state.json" + choice));
  EXPECT_THAT(resume(output_ / "checkpoint-7"), HasSubstr("checkpoint-7: no such folder" + choice));
  flip_a_bit(output_ / "checkpoint-1/model.safetensors");
  EXPECT_THAT(resume(output_ / "checkpoint-7"),
              HasSubstr("no such folder\n  available: checkpoint-1 (damaged), checkpoint-2 (damaged)\n"));
  fs::create_directories(folder_ / "empty");
  EXPECT_THAT(resume(folder_ / "empty"),
              HasSubstr("it does not contain training_state.json\n  name a checkpoint-N folder"));
}

// A similar name would be checkpoint-1.
TEST_F(Checkpoints, ThatAreNotThereAreNotTakenForThoseOfAlmostTheSameNumber) {
  train_ok(folder_.path(), config({{"max_steps", 12}, {"save_steps", 1}}));
  const std::string missing = (output_ / "checkpoint-21").string(),
                    choice = "did you mean \"" + (output_ / "checkpoint-12").string() +
                             "\"?\n  available: 2 older ones, checkpoint-3, checkpoint-4,";
  const std::string run = (folder_ / "config.json").string();
  for (const std::vector<std::string>& words : {std::vector<std::string>{run, "--resume", missing},
                                                {run, "--resume", missing + "/"},
                                                {run, "resume_from_checkpoint=" + missing},
                                                {"inspect", missing},
                                                {"generate", "--model", missing, "--prompt", "a"}}) {
    const Outcome outcome = qtrain({.words = words});
    EXPECT_THAT(outcome.code, ::testing::AnyOf(2, 3)) << words[0] << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(choice)) << words[0];
  }
}

TEST_F(Checkpoints, OfAnotherProgramAreToldAndSetAside) {
  for (const char* name : {"checkpoint-2", "checkpoint-10"}) {
    fs::create_directories(output_ / name);
    write_file(output_ / name / "model.safetensors", "of another program");
  }
  const Outcome outcome = train_ok(folder_.path(), config());
  EXPECT_THAT(outcome.err, HasSubstr("ignoring checkpoint folders without a manifest.json, which marks a complete "
                                     "checkpoint (checkpoint-2, checkpoint-10)"));
  qtrain_ok({.words = {"inspect", newest_.string(), "--verify"}});
  for (const char* name : {"checkpoint-2.superseded", "checkpoint-10"})
    EXPECT_EQ(bytes_of(output_ / name / "model.safetensors"), "of another program") << name;
  EXPECT_THAT(qtrain_ok({.words = {"clean", output_.string()}}).out, HasSubstr("1 superseded checkpoint listed"));
}

// The run was killed after its last checkpoint, but before it logged the totals.
TEST_F(Checkpoints, OfAFinishedRunKeepItsTotals) {
  train_ok(folder_.path(), config());
  const std::string log = bytes_of(output_ / "metrics.jsonl"), totals = bytes_of(output_ / "train_results.json");
  train_ok(folder_.path(), config());
  EXPECT_EQ(bytes_of(output_ / "metrics.jsonl"), log);
  EXPECT_EQ(bytes_of(output_ / "train_results.json"), totals);
}

TEST_F(Checkpoints, OfALastStepWithoutTotalsHaveThoseOfTheLog) {
  train_ok(folder_.path(), config({{"max_steps", 100}, {"save_steps", 100}}));
  const Json whole = read_json(output_ / "train_results.json");
  const std::string log = bytes_of(output_ / "metrics.jsonl");
  write_file(output_ / "metrics.jsonl", log.substr(0, log.rfind('\n', log.size() - 2) + 1));
  train_ok(folder_.path(), config({{"max_steps", 100}, {"save_steps", 100}}));
  const Json again = read_json(output_ / "train_results.json");
  for (const char* key : {"train_runtime", "tokens_per_second", "train_steps_per_second"}) {
    EXPECT_GT(again.at(key).get<double>(), whole.at(key).get<double>() / 10) << key;
    EXPECT_LT(again.at(key).get<double>(), whole.at(key).get<double>() * 10) << key;
  }
}

TEST_F(Checkpoints, BeyondTheLimitGoWhenARunGoesOn) {
  train_ok(folder_.path(), config({{"max_steps", 3}}));
  for (const char* name : {"checkpoint-1", "checkpoint-2"}) ASSERT_TRUE(fs::exists(output_ / name));
  train_ok(folder_.path(), config({{"max_steps", 3}, {"save_total_limit", 1}}));
  for (const char* name : {"checkpoint-1", "checkpoint-2"}) EXPECT_FALSE(fs::exists(output_ / name)) << name;
  EXPECT_TRUE(fs::exists(output_ / "checkpoint-3"));
}

TEST_F(Checkpoints, OfEarlierRunsAreListedAndRemovedByClean) {
  train_ok(folder_.path(), config());
  train_ok(folder_.path(), config(), {"--resume", "never"});
  const fs::path old = output_ / "checkpoint-1.superseded";
  Outcome outcome = qtrain_ok({.words = {"clean", output_.string()}});
  EXPECT_THAT(outcome.out, HasSubstr(old.string()));
  EXPECT_THAT(outcome.out, HasSubstr("2 superseded checkpoints listed; add --yes to remove them"));
  ASSERT_TRUE(fs::exists(old));
  outcome = qtrain_ok({.words = {"clean", output_.string(), "--yes", "--json"}});
  const Json report = parse_json(outcome.out, "clean");
  EXPECT_EQ(report.at("removed"), true);
  ASSERT_EQ(report.at("folders").size(), 2u);
  EXPECT_EQ(report.at("folders")[0].at("path"), old.string());
  EXPECT_GT(report.at("folders")[0].at("bytes"), fs::file_size(output_ / "checkpoint-1/model.safetensors"));
  EXPECT_FALSE(fs::exists(old));
  for (const fs::path& kept : {output_ / "checkpoint-1", newest_, output_})
    qtrain_ok({.words = {"inspect", kept.string(), "--verify"}});
  EXPECT_THAT(qtrain_ok({.words = {"clean", output_.string()}}).out, HasSubstr("0 superseded checkpoints"));
  for (const char* yes : {"--quiet", "--yes"}) {
    qtrain_ok({.words = {"clean", folder_.path().string(), yes}});
    EXPECT_FALSE(fs::exists(folder_ / ".lock")) << "no run has ever written there";
  }
  EXPECT_EQ(qtrain({.words = {"clean", (folder_ / "none").string()}}).code, 3);
  EXPECT_FALSE(fs::exists(folder_ / "none"));
}

TEST_F(Checkpoints, SealTheFinalModelLikewise) {
  write_untrained_model(folder_ / "model");
  const Json run = config({{"model_name_or_path", (folder_ / "model").string()}, {"random_init", true}});
  fs::create_directories(output_);
  write_file(output_ / "notes.json", "of somebody else");
  train_ok(folder_.path(), run);
  const std::vector<std::string> verify{"inspect", output_.string() + "/", "--verify"};
  qtrain_ok({.words = verify});
  const Json manifest = read_json(output_ / "manifest.json");
  EXPECT_EQ(manifest.at("step"), 2);
  EXPECT_THAT(
      keys_of(manifest.at("files")),
      ::testing::UnorderedElementsAre("chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json",
                                      "tokenizer_config.json", "train_results.json", "trainer_state.json"));
  for (const auto& [name, ignored] : manifest.at("files").items()) {
    const std::string whole = bytes_of(output_ / name);
    flip_a_bit(output_ / name);
    const Outcome outcome = qtrain({.words = verify});
    EXPECT_EQ(outcome.code, 3) << name;
    EXPECT_THAT(outcome.err, HasSubstr(name + ": is damaged: its SHA-256 does not match"));
    write_file(output_ / name, whole);
  }
  flip_a_bit(output_ / "model.safetensors");
  train_ok(folder_.path(), run);
  qtrain_ok({.words = verify});
  EXPECT_EQ(bytes_of(output_ / "notes.json"), "of somebody else");
}

TEST_F(Checkpoints, AreWhatHasHashesToCheck) {
  const Outcome outcome = qtrain({.words = {"inspect", (kGoldens / "llama_gqa3_tied").string(), "--verify"}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("there are no hashes to check"));
}

}  // namespace
}  // namespace qtrain::e2e
