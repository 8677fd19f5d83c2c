// `qtrain tune`: what it tries, what it writes, and what it leaves unchanged.
#include <signal.h>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class TuneOf : public ::testing::Test {
 protected:
  Json config(const Json& changes = Json::object()) const {
    Json c = tiny_run(folder_ / "out");
    c.update({{"device", "cpu"}, {"gradient_checkpointing", true}});
    c.update(changes);
    return c;
  }
  fs::path file() const { return folder_ / "run.json"; }
  std::vector<std::string> words(const std::vector<std::string>& more) const {
    std::vector<std::string> all{"tune", file().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome tune(const Json& c, const std::vector<std::string>& more = {}) const {
    write_file(file(), dump_json(c));
    return qtrain({.words = words(more), .folder = kGoldens});
  }
  Json json(const Json& c, std::vector<std::string> more = {}) const {
    for (const char* word : {"--steps", "1", "--json"}) more.emplace_back(word);
    const Outcome outcome = tune(c, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return parse_json(outcome.out, "tune");
  }
  static std::int64_t rows_of_an_update(const Json& c) {
    return c.at("per_device_train_batch_size").get<std::int64_t>() *
           c.at("gradient_accumulation_steps").get<std::int64_t>();
  }

  TempFolder folder_;
};

TEST_F(TuneOf, WritesTheConfigWithWhatIsFastest) {
  const Json c = config({{"_why", "a comment"}});
  const Json t = json(c, {"learning_rate=0.25"});
  EXPECT_EQ(t.at("output"), (folder_ / "run.tuned.json").string());
  Json expected = c;
  expected["learning_rate"] = 0.25;
  expected.update(t.at("changes"));
  expected["_written_by"] = "qtrain tune";
  EXPECT_EQ(read_json(folder_ / "run.tuned.json"), expected) << "the user's keys and what was changed, nothing else";
  EXPECT_EQ(read_json(file()), c);
  EXPECT_FALSE(fs::exists(folder_ / "out")) << "it is no run";
  EXPECT_EQ(qtrain({.words = {"estimate", (folder_ / "run.tuned.json").string()}, .folder = kGoldens}).code, 0);
}

// The plan of each trial is that of `estimate`, the allocated memory matches it, and the rows per update stay the same.
TEST_F(TuneOf, TriesWhatFits) {
  const Json c = config(), t = json(c);
  std::int64_t best = 0, tried = 0;
  std::set<std::int64_t> micro_batches;
  for (const Json& trial : t.at("trials")) {
    EXPECT_EQ(rows_of_an_update(trial), rows_of_an_update(c));
    micro_batches.insert(trial.at("per_device_train_batch_size").get<std::int64_t>());
    Json changed = c;
    changed.update(trial.at("changes"));
    EXPECT_EQ(trial.at("number").get<int>() > 0, !trial.at("tokens_per_second").is_null());
    if (trial.at("number") == 0) continue;
    ++tried;
    EXPECT_EQ(trial.at("measured"), trial.at("planned")) << trial;
    if (!trial.at("best").get<bool>()) continue;
    ++best;
    EXPECT_EQ(trial.at("changes"), t.at("changes"));
    write_file(folder_ / "best.json", dump_json(changed));
    const Outcome e = qtrain({.words = {"estimate", (folder_ / "best.json").string(), "--json"}, .folder = kGoldens});
    EXPECT_EQ(parse_json(e.out, "estimate").at("memory").at("total"), trial.at("planned"));
  }
  EXPECT_EQ(micro_batches, (std::set<std::int64_t>{1, 2, 4}));
  EXPECT_EQ(best, 1);
  EXPECT_GE(tried, 3);
  EXPECT_EQ(t.at("trials")[0].at("changes"), Json::object()) << "the config as it is comes first";
  EXPECT_EQ(t.at("trials")[0].at("number"), 1);
  EXPECT_GE(t.at("speedup").get<double>(), 1);
}

TEST_F(TuneOf, WritesOverItsInputOnlyWhereItIsAsked) {
  const Json c = config();
  EXPECT_EQ(tune(c, {"--steps", "1", "--trials", "1"}).code, 0);
  EXPECT_EQ(read_json(file()), c);
  Json as_it_is = c;
  as_it_is["_written_by"] = "qtrain tune";
  EXPECT_EQ(read_json(folder_ / "run.tuned.json"), as_it_is) << "one trial is the config as it is";
  EXPECT_EQ(tune(c, {"--steps", "1", "--output", file().string()}).code, 2);
  EXPECT_EQ(read_json(file()), c);
  EXPECT_EQ(tune(c, {"--steps", "1", "--output", file().string(), "--overwrite", "learning_rate=0.25"}).code, 0);
  EXPECT_EQ(read_json(file()).at("gradient_accumulation_steps").get<int>() *
                read_json(file()).at("per_device_train_batch_size").get<int>(),
            4);
  EXPECT_EQ(read_json(file()).at("learning_rate"), 0.25);
}

// Keys keep the names that the config file uses.
TEST_F(TuneOf, KeepsTheNamesOfKeys) {
  Json c = config({{"device", "cpu"}});
  for (const char* key : {"per_device_train_batch_size", "bf16"}) c.erase(key);
  c["per_gpu_train_batch_size"] = 1;
  c["gradient_accumulation_steps"] = 8;
  c["bf16"] = false;
  const Json t = json(c);
  const Json written = read_json(folder_ / "run.tuned.json");
  EXPECT_EQ(written.at("per_gpu_train_batch_size"), t.at("changes").value("per_device_train_batch_size", Json(1)));
  EXPECT_FALSE(written.contains("per_device_train_batch_size"));
}

TEST_F(TuneOf, SaysWhatItTriedWithin80Columns) {
  const Outcome outcome = tune(config(), {"--steps", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("micro-batch  recompute on the host             planned measured  tokens/s"));
  EXPECT_THAT(outcome.out, HasSubstr("\nwrote "));
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.size() < 80 || line.starts_with("written") || line.starts_with("per_device")) << line;
}

TEST_F(TuneOf, EndsWith4WhereNothingFits) {
  const fs::path model = folder_ / "huge";
  write_untrained_model(model);
  Json huge = read_json(model / "config.json");
  huge.update({{"hidden_size", 8192},
               {"intermediate_size", 32768},
               {"num_hidden_layers", 96},
               {"num_attention_heads", 32},
               {"num_key_value_heads", 32},
               {"head_dim", 256}});
  write_file(model / "config.json", dump_json(huge));
  const Outcome outcome =
      tune(config({{"model_name_or_path", model.string()}, {"random_init", true}}), {"--steps", "1"});
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no micro-batch fits with any recompute policy"));
  EXPECT_FALSE(fs::exists(folder_ / "run.tuned.json"));
}

TEST_F(TuneOf, AStopWritesTheBestSoFarOrNothing) {
  for (const char* when : {"data: ", "1 x 2, recomputation block: "}) {
    write_file(file(), dump_json(config({{"per_device_train_batch_size", 1}})));
    Process process(launch_of({.words = words({"--steps", "300"}), .folder = kGoldens}));
    ASSERT_TRUE(process.waits_for(when)) << process.said();
    process.signal(SIGINT);
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.code, 75) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("Stopping after this step"));
    EXPECT_EQ(fs::exists(folder_ / "run.tuned.json"), when[0] != 'd') << outcome.err;
  }
}

TEST_F(TuneOf, RefusesWhatItCannotMeasure) {
  EXPECT_THAT(tune(config({{"nproc", 2}})).err, HasSubstr("tune measures one device"));
  EXPECT_THAT(tune(config(), {"--steps", "0"}).err, HasSubstr("--steps is 0"));
  Json c = config();
  c.erase("dataset_name");
  EXPECT_EQ(tune(c).code, 2);
}

}  // namespace
}  // namespace qtrain::e2e
