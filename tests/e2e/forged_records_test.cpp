// Forged records of runs without a result, and of checkpoints that no run resumes from.
#include "tests/e2e/tampered_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ForgedRecords : public TamperedRun {
 protected:
  fs::path resolved() const { return output() / "resolved_config.json"; }
  void stop_after_three() {
    write_file(at("run.json"), dump_json(config()));
    ASSERT_EQ(qtrain({.words = {at("run.json").string(), "--stop_after", "3"}, .folder = folder_.path()}).code, 75);
  }
};

// Nothing seals them before the run has a result, so only repeating the steps shows what they were.
TEST_F(ForgedRecords, OfAStoppedRunAreRefused) {
  stop_after_three();
  ASSERT_EQ(verify().code, 0);
  const Json honest = read_json(resolved());
  const std::string tokenizer = (model() / "tokenizer.json").string();
  const std::map<std::string, Json> others{{"device", "Another processor, AVX9"},
                                           {"training_data_sha256", std::string(64, '0')},
                                           {"evaluation_data_sha256", std::string(64, '0')},
                                           {"training_data", "0123456789abcdef"},
                                           {"seed", 7},
                                           {"data_seed", 7},
                                           {"max_steps", 77},
                                           {"files_sha256", Json::object()},
                                           {"invented", 1}};
  for (const auto& [key, value] : others) {
    SCOPED_TRACE(key);
    Json json = honest;
    json["run"][key] = value;
    write_document(resolved(), json);
    const Outcome o = verify({"--steps", "1"});
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr(key));
  }
  Json json = honest;
  for (const char* files : {"files", "files_sha256"}) json["run"][files].erase(tokenizer);
  write_document(resolved(), json);
  const Outcome o = verify({"--steps", "1"});
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("run.files." + tokenizer));
  write_document(resolved(), honest);
  EXPECT_EQ(verify().code, 0);
}

TEST_F(ForgedRecords, ThatLackAMemberAreRefused) {
  const auto expect_refused = [&] {
    const Json honest = read_json(resolved());
    const bool has_result = fs::exists(output() / "train_results.json");
    for (const char* key : {"program_sha256", "memory_plan", "device_kind", "seed"}) {
      SCOPED_TRACE(key);
      Json json = honest;
      json["run"].erase(key);
      write_document(resolved(), json);
      if (has_result) seal_what_lies_beside();
      const Outcome o = verify({"--steps", "1"});
      EXPECT_EQ(o.code, 3) << o.out;
      EXPECT_THAT(o.out, HasSubstr(key));
    }
    write_document(resolved(), honest);
    if (has_result) seal_what_lies_beside();
    EXPECT_EQ(verify().code, 0);
  };
  stop_after_three();
  expect_refused();
  qtrain_ok({.words = {at("run.json").string()}, .folder = folder_.path()});
  expect_refused();
}

// The same values in another form are not what the run wrote.
TEST_F(ForgedRecords, InAnotherFormAreRefused) {
  train_ok(folder_.path(), config());
  const auto expect_refused = [&](const fs::path& file) {
    SCOPED_TRACE(file);
    const std::string honest = bytes_of(file);
    for (const std::string& forged : {dump_json(read_json(file)), honest + "\n", " " + honest}) {
      write_file(file, forged);
      if (file == resolved()) seal_what_lies_beside();
      const Outcome o = verify({"--steps", "0"});
      EXPECT_EQ(o.code, 3) << o.out;
      EXPECT_THAT(o.out, HasSubstr("not formatted as this program writes it"));
    }
    write_file(file, honest);
  };
  expect_refused(output() / "manifest.json");
  expect_refused(output() / "checkpoint-2/manifest.json");
  expect_refused(resolved());
  seal_what_lies_beside();
  EXPECT_EQ(verify().code, 0);
}

// The last start had another rate and another number of steps, and was stopped before it saved anything.
TEST_F(ForgedRecords, OfAStartThatSavedNothingAreNotMissed) {
  stop_after_three();
  Json json = read_json(resolved());
  json["values"]["learning_rate"] = {{"value", 0.125}, {"origin", "run.json:7"}};
  json["run"]["max_steps"] = 9;
  json["values"]["max_steps"] = {{"value", 9}, {"origin", "run.json:8"}};
  write_document(resolved(), json);
  const Outcome o = verify();
  EXPECT_EQ(o.code, 0) << o.out;
  EXPECT_THAT(o.out, AllOf(HasSubstr("steps up to 3 were trained with"), HasSubstr("\"learning_rate\": 0.005")));
}

// Each is only the end of steps from the start, so repeating the others does not cover it.
TEST_F(ForgedRecords, OfCheckpointsThatNoRunResumesFromAreAllCoveredByTheStepsOfTheRun) {
  Json c = config();
  c.update({{"save_only_model", true}, {"max_steps", 8}});
  train_ok(folder_.path(), c);
  for (const char* checkpoint : {"checkpoint-2", "checkpoint-4", "checkpoint-6"}) {
    SCOPED_TRACE(checkpoint);
    const fs::path weights = output() / checkpoint / "model.safetensors";
    const std::string honest = bytes_of(weights);
    std::string forged = honest;
    forged.back() ^= 1;
    write_file(weights, forged);
    seal(output() / checkpoint);
    const Outcome o = verify({"--steps", "8"});
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr(std::string(checkpoint) + ": model.safetensors has different contents"));
    write_file(weights, honest);
    seal(output() / checkpoint);
  }
  EXPECT_EQ(verify({"--steps", "8"}).code, 0);
}

}  // namespace
}  // namespace qtrain::e2e
