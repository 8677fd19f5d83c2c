#include <functional>

#include "core/file.h"
#include "core/sha256.h"
#include "tests/e2e/support.h"

/// `verify` and `reproduce`: a run is held against what is recorded of it.
namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class Verify : public ::testing::Test {
 protected:
  fs::path model() const { return folder_ / "model"; }
  fs::path rows() const { return folder_ / "rows.jsonl"; }
  fs::path output() const { return folder_ / "out"; }

  void SetUp() override {
    write_untrained_model(model());
    std::string lines;
    for (int i = 0; i < 12; ++i)
      lines += jsonl({{{"text", "row " + std::to_string(i) + " of some that are told apart"}}});
    write_file(rows(), lines);
    train_ok(folder_.path(), config());
  }
  Json config() const {
    Json c = tiny_run(output());
    c.update({{"model_name_or_path", model().string()},
              {"dataset_name", rows().string()},
              {"random_init", true},
              {"max_length", 32},
              {"max_steps", 4},
              {"save_strategy", "steps"},
              {"save_steps", 2}});
    return c;
  }
  // As docs/files.md says that manifests are made.
  static void seal(const fs::path& folder) {
    Json manifest = read_json(folder / "manifest.json");
    for (const auto& [name, file] : manifest["files"].items())
      file = {{"size", fs::file_size(folder / name)}, {"sha256", sha256_of_file(folder / name)}};
    manifest.erase("sha256");
    manifest["sha256"] = sha256_of(dump_json(manifest));
    write_file(folder / "manifest.json", dump_json(manifest, 2) + "\n");
  }
  Outcome verify(const std::string& steps = "100") const {
    return qtrain({.words = {"verify", output().string(), "--steps", steps, "--scratch", folder_.path().string()}});
  }
  static void change(const fs::path& file, const std::string& from, const std::string& to) {
    std::string text = bytes_of(file);
    ASSERT_NE(text.find(from), text.npos) << from;
    write_file(file, text.replace(text.find(from), from.size(), to));
  }
  static void flip_last_bit(const fs::path& file) {
    std::string bytes = bytes_of(file);
    bytes.back() ^= 1;
    write_file(file, bytes);
  }
  void expect_differs(const std::string& what, const std::string& steps = "100") const {
    const Outcome o = verify(steps);
    EXPECT_EQ(o.code, 3) << o.out;
    EXPECT_THAT(o.out, HasSubstr("is not what was recorded"));
    EXPECT_THAT(o.out, HasSubstr(what)) << o.err;
  }
  TempFolder folder_;
};

TEST_F(Verify, AnHonestRunHolds) {
  const Outcome o = qtrain_ok({.words = {"verify", output().string(), "--steps", "4", "--json", "--statement",
                                         (folder_ / "statement.json").string(), "--scratch", folder_.path().string()}});
  const Json found = parse_json(o.out, "stdout");
  EXPECT_EQ(found["holds"], true);
  EXPECT_EQ(found["redone"].size(), 2u) << "steps 1 and 2, and 3 and 4";
  for (const Json& check : found["checks"]) EXPECT_EQ(check["holds"], true) << check;
  const Json statement = read_json(folder_ / "statement.json");
  EXPECT_EQ(statement["_type"], "https://in-toto.io/Statement/v1");
  std::map<std::string, std::string> digests;
  for (const Json& s : statement["subject"]) digests[s["name"]] = s["digest"]["sha256"];
  EXPECT_EQ(digests["model.safetensors"],
            read_json(output() / "manifest.json")["files"]["model.safetensors"]["sha256"]);
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_THAT(entry.path().filename().string(), ::testing::Not(HasSubstr("qtrain-verify")));
}

TEST_F(Verify, OnlyHashesWithoutSteps) {
  const Outcome o = verify("0");
  EXPECT_EQ(o.code, 0) << o.out;
  EXPECT_THAT(o.out, ::testing::Not(HasSubstr("steps")));
}

TEST_F(Verify, SeesABitOfAFile) {
  flip_last_bit(output() / "checkpoint-2/optimizer.safetensors");
  expect_differs("optimizer.safetensors", "0");
}
TEST_F(Verify, SeesAChangedConfig) {
  change(output() / "resolved_config.json", "\"seed\": 42", "\"seed\": 43");
  expect_differs("resolved_config.json", "0");
}
TEST_F(Verify, SeesAChangedTokenizer) {
  change(model() / "tokenizer_config.json", "{", "{ ");
  expect_differs("has other contents than in the run", "0");
}
TEST_F(Verify, SeesCheckpointsThatChangedPlaces) {
  fs::rename(output() / "checkpoint-2", output() / "x");
  fs::rename(output() / "checkpoint-4", output() / "checkpoint-2");
  fs::rename(output() / "x", output() / "checkpoint-4");
  expect_differs("checkpoint-2", "0");
}

// Manifests that were made anew hold, so these are for doing the steps again.
TEST_F(Verify, SeesABitOfAResultThatWasSealedAgain) {
  flip_last_bit(output() / "model.safetensors");
  seal(output());
  expect_differs("steps 3 to 4, the result: model.safetensors has other contents");
}
TEST_F(Verify, SeesABitOfACheckpointThatWasSealedAgain) {
  flip_last_bit(output() / "checkpoint-2/model.safetensors");
  seal(output() / "checkpoint-2");
  expect_differs("steps 1 to 2, checkpoint-2: model.safetensors has other contents");
}
TEST_F(Verify, SeesALossThatWasSealedAgain) {
  const fs::path state = output() / "checkpoint-4/trainer_state.json";
  Json json = read_json(state);
  json["log_history"][2]["loss"] = 1.5;
  write_file(state, dump_json(json, 2) + "\n");
  seal(output() / "checkpoint-4");
  expect_differs("logged was {\"step\":3,\"loss\":1.5");
}
TEST_F(Verify, SeesAChangedRow) {
  change(rows(), "row 7 of", "row 8 of");
  expect_differs("cannot be done again");
}
TEST_F(Verify, SeesACheckpointOfAnotherSeed) {
  Json other = config();
  other.update({{"seed", 43}, {"output_dir", (folder_ / "other").string()}});
  train_ok(folder_.path(), other);
  fs::remove_all(output() / "checkpoint-4");
  fs::copy(folder_ / "other/checkpoint-4", output() / "checkpoint-4");
  expect_differs("its config is not that of checkpoint-2: seed = 42, the config says 43", "0");
}

TEST_F(Verify, WhatIsNoRunIsRefused) {
  EXPECT_THAT(qtrain({.words = {"verify", model().string()}}).err, HasSubstr("no resolved_config.json"));
  write_file(model() / "resolved_config.json", R"({"run": 7})");
  const Outcome o = qtrain({.words = {"verify", model().string()}});
  EXPECT_EQ(o.code, 3);
  EXPECT_THAT(o.err, HasSubstr("\"run\" is missing or of another type"));
}

TEST_F(Verify, AReproducedRunHasTheSameWeights) {
  const fs::path again = folder_ / "again";
  const Outcome o = qtrain_ok({.words = {"reproduce", output().string(), "--output", again.string()}});
  EXPECT_THAT(o.err, HasSubstr("the weights are those of " + output().string() + ", bit for bit"));
  EXPECT_EQ(bytes_of(again / "model.safetensors"), bytes_of(output() / "model.safetensors"));
  EXPECT_EQ(qtrain({.words = {"reproduce", output().string(), "--output", again.string()}}).code, 2) << "it is taken";
  change(model() / "config.json", "10000.0", "10001.0");
  const Outcome changed = qtrain({.words = {"reproduce", output().string(), "--output", (folder_ / "b").string()}});
  EXPECT_EQ(changed.code, 3);
  EXPECT_THAT(changed.err, HasSubstr("config.json"));
}

TEST_F(Verify, ARunStopsAfterTheStepThatIsNamed) {
  Json part = config();
  part["output_dir"] = (folder_ / "part").string();
  write_file(folder_ / "part.json", dump_json(part));
  const std::string file = (folder_ / "part.json").string();
  EXPECT_EQ(qtrain({.words = {file, "--stop_after", "3"}}).code, 75);
  EXPECT_TRUE(fs::exists(folder_ / "part/checkpoint-3/manifest.json"));
  qtrain_ok({.words = {file}});
  EXPECT_EQ(bytes_of(folder_ / "part/model.safetensors"), bytes_of(output() / "model.safetensors"));
  EXPECT_EQ(qtrain({.words = {file, "--stop_after", "0"}}).code, 2);
}

}  // namespace
}  // namespace qtrain::e2e
