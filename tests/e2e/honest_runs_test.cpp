// Unmodified runs pass verification, however they were made.
#include <fmt/format.h>

#include <memory>

#include "tests/e2e/started_ranks.h"
#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// One start of a run: keys that differ from the config, and flags.
struct Start {
  Json keys = Json::object();
  std::vector<std::string> flags = {};
  int code = 0;  ///< the exit code that it ends with
};
const std::vector<std::string> kAfterThree{"--stop_after", "3"};
constexpr int kStopped = 75;

struct HonestRun {
  std::string name;
  enum class Kind : std::uint8_t { full, adapter, quantized };
  Kind kind = Kind::full;
  std::vector<Start> starts = {{}};
};

class HonestRunOf : public VerifiedRun, public ::testing::WithParamInterface<HonestRun> {};

std::vector<HonestRun> honest_runs() {
  using Kind = HonestRun::Kind;
  const Json ordered{{"deterministic_reduce", true}, {"gradient_accumulation_steps", 4}};
  Json by_two = ordered;
  by_two.update({{"nproc", 2}, {"gradient_accumulation_steps", 2}});
  return {
      {"AllWeights"},
      {"AnAdapter", Kind::adapter},
      {"AQuantizedModel", Kind::quantized},
      {"WithoutTheOptimizersState", Kind::full, {{{{"save_only_model", true}}}}},
      {"AnAdapterWithoutTheOptimizersState", Kind::adapter, {{{{"save_only_model", true}}}}},
      {"WithoutCheckpoints", Kind::full, {{{{"save_strategy", "no"}}}}},
      {"WithOneCheckpointLeft", Kind::full, {{{{"save_total_limit", 1}}}}},
      {"InHalfPrecision", Kind::full, {{{{"dtype", "bfloat16"}, {"bf16", true}}}}},
      {"TheBestOfIt", Kind::full, {{{{"load_best_model_at_end", true}, {"metric_for_best_model", "eval_loss"}}}}},
      {"Packed", Kind::full, {{{{"packing", true}, {"max_length", 64}, {"eval_strategy", "no"}}}}},
      {"ThatLogsNow AndThen", Kind::full, {{{{"logging_steps", 3}}}}},
      {"Stopped", Kind::full, {{{}, kAfterThree, kStopped}}},
      {"Resumed", Kind::full, {{{}, kAfterThree, kStopped}, {}}},
      {"AnAdapterResumed", Kind::adapter, {{{}, kAfterThree, kStopped}, {}}},
      {"DoneTwice", Kind::full, {{}, {}}},
      {"DoneAgainWithFewerSteps", Kind::full, {{}, {{{"max_steps", 3}}}}},
      {"DoneAgainWithOtherSaves", Kind::full, {{}, {{{"save_steps", 1}}}}},
      {"DoneAgainWithPatience", Kind::full, {{}, {{{"early_stopping_patience", 9}}}}},
      {"EndedEarlierWithTheBestOfIt",
       Kind::full,
       {{{{"max_steps", 8}, {"load_best_model_at_end", true}}, kAfterThree, kStopped},
        {{{"max_steps", 3}, {"load_best_model_at_end", true}}}}},
      {"GoneOnWith", Kind::full, {{}, {{{"max_steps", 6}}}}},
      {"StoppedBehindItsResult", Kind::full, {{}, {{{"max_steps", 8}}, {"--stop_after", "5"}, kStopped}}},
      {"StoppedBehindItsResultByTwoRanks",
       Kind::full,
       {{ordered},
        {[&] {
           auto c = by_two;
           c["max_steps"] = 8;
           return c;
         }(),
         {"--stop_after", "5"},
         kStopped}}},
      {"ResumedWithAnotherRate", Kind::full, {{{}, kAfterThree, kStopped}, {{{"learning_rate", 0.001}}}}},
      {"ResumedWithOtherLogging", Kind::full, {{{}, kAfterThree, kStopped}, {{{"logging_steps", 2}}}}},
      {"EndedEarlier", Kind::full, {{{{"max_steps", 8}}, kAfterThree, kStopped}, {{{"max_steps", 3}}}}},
      {"EndedBeforeItsLastStep",
       Kind::full,
       {{{{"max_steps", 8}}, kAfterThree, kStopped}, {{{"max_steps", 2}, {"learning_rate", 0.001}}}}},
      {"AnAdapterEndedEarlier", Kind::adapter, {{{{"max_steps", 8}}, kAfterThree, kStopped}, {{{"max_steps", 3}}}}},
      {"EndedEarlierByTwoRanks", Kind::full, {{ordered, kAfterThree, kStopped}, {[&] {
                                                auto c = by_two;
                                                c["max_steps"] = 3;
                                                return c;
                                              }()}}},
      {"StartedOver", Kind::full, {{}, {{{"seed", 7}}, {"--resume", "never"}}}},
      {"ByTwoRanks", Kind::full, {{{{"nproc", 2}}}}},
      {"ByTwoRanksThatDivide", Kind::full, {{{{"nproc", 2}, {"zero_stage", 2}}}}},
      {"ResumedByOneRankInOrder", Kind::full, {{by_two, kAfterThree, kStopped}, {ordered}}},
      {"ResumedByTwoRanksInOrder", Kind::full, {{ordered, kAfterThree, kStopped}, {by_two}}},
      {"ResumedByTwoRanks",
       Kind::full,
       {{{}, kAfterThree, kStopped}, {{{"nproc", 2}, {"gradient_accumulation_steps", 1}}}}},
  };
}

TEST_P(HonestRunOf, Holds) {
  const HonestRun& run = GetParam();
  Json base = run.kind == HonestRun::Kind::full ? config() : adapter_config();
  if (run.kind == HonestRun::Kind::quantized)
    base.update({{"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}, {"bnb_4bit_use_double_quant", true}});
  for (const Start& start : run.starts) {
    Json config = base;
    if (start.keys.is_object()) config.update(start.keys);
    write_file(at("run.json"), dump_json(config));
    std::vector<std::string> words{at("run.json").string()};
    words.insert(words.end(), start.flags.begin(), start.flags.end());
    const Outcome o = qtrain({.words = words, .folder = folder_.path()});
    ASSERT_EQ(o.code, start.code) << o.err;
  }
  const Outcome o = verify();
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr(": verified"));
  EXPECT_THAT(o.out, HasSubstr("steps ")) << "some steps were repeated";
}

INSTANTIATE_TEST_SUITE_P(Each, HonestRunOf, ::testing::ValuesIn(honest_runs()), [](const auto& info) {
  std::string name = info.param.name;
  std::erase(name, ' ');
  return name;
});

// The checkpoint that records the values with which its steps were done has been rotated away.
TEST_F(VerifiedRun, HoldsWithEarlierValuesThatAreNamed) {
  Json c = config();
  c["save_total_limit"] = 1;
  const auto start = [&](const std::vector<std::string>& flags, int code) {
    write_file(at("run.json"), dump_json(c));
    std::vector<std::string> words{at("run.json").string()};
    words.insert(words.end(), flags.begin(), flags.end());
    ASSERT_EQ(qtrain({.words = words, .folder = folder_.path()}).code, code);
  };
  start(kAfterThree, kStopped);
  c["learning_rate"] = 0.001;
  start({}, 0);
  ASSERT_FALSE(fs::exists(output() / "checkpoint-3"));
  Outcome o = verify();
  EXPECT_EQ(o.code, 3) << o.out;
  EXPECT_THAT(o.out, HasSubstr("--earlier STEP:KEY=VALUE"));
  for (const char* wrong : {"3:learning_rate=0.002", "2:learning_rate=0.005"}) {
    o = verify({"--earlier", wrong, "--statement", at("s.json").string()});
    EXPECT_EQ(o.code, 3) << wrong << o.out;
    EXPECT_FALSE(fs::exists(at("s.json")));
  }
  o = verify({"--earlier", "3:learning_rate=0.005", "--statement", at("s.json").string()});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  const Json parameters = read_json(at("s.json"))["predicate"]["buildDefinition"]["internalParameters"];
  EXPECT_EQ(parameters["qtrain_earlierValues"],
            Json::array({{{"untilStep", 3}, {"values", {{"learning_rate", 0.005}}}, {"ranks", 1}}}));
  for (const char* bad : {"learning_rate=1", "0:learning_rate=1", "3:seed=1", "3:output_dir=x", "3:nothing=1", "3:x"})
    EXPECT_EQ(verify({"--earlier", bad}).code, 2) << bad;
}

/// A run that is moved after it has finished.
class MovedRun : public VerifiedRun {
 protected:
  // Users write configs with names relative to the folder in which they start the run.
  Json relative(Json config) const {
    config.update({{"model_name_or_path", "model"}, {"dataset_name", "rows.jsonl"}, {"output_dir", "out"}});
    return config;
  }
  void train_in(const fs::path& folder, const Json& config) const {
    write_file(folder / "run.json", dump_json(config));
    qtrain_ok({.words = {"run.json"}, .folder = folder});
  }
  void expect_holds(const fs::path& run) const {
    const Outcome o = verify_of(run);
    EXPECT_EQ(o.code, 0) << o.out << o.err;
  }
};

TEST_F(MovedRun, HoldsWithAllThatItNames) {
  const fs::path project = at("project"), moved = at("elsewhere/renamed");
  fs::create_directories(project);
  for (const char* name : {"model", "rows.jsonl"}) fs::rename(at(name), project / name);
  train_in(project, relative(config()));
  fs::create_directories(moved.parent_path());
  fs::rename(project, moved);
  expect_holds(moved / "out");
  qtrain_ok({.words = {"reproduce", (moved / "out").string(), "--output", (moved / "again").string()}});
}

TEST_F(MovedRun, HoldsWithNamesInFull) {
  Json adapted = adapter_config();
  const fs::path project = at("project"), moved = at("moved");
  fs::create_directories(project);
  for (const char* name : {"base", "rows.jsonl"}) fs::rename(at(name), project / name);
  adapted.update({{"model_name_or_path", (project / "base").string()},
                  {"dataset_name", (project / "*.jsonl").string()},
                  {"output_dir", (project / "out").string()},
                  {"load_best_model_at_end", true},
                  {"metric_for_best_model", "eval_loss"}});
  train_in(at(""), adapted);
  fs::rename(project, moved);
  expect_holds(moved / "out");
}

TEST_F(MovedRun, HoldsAlone) {
  train_in(at(""), relative(config()));
  fs::rename(output(), at("kept"));
  expect_holds(at("kept"));
}

TEST_F(MovedRun, SaysWhatIsNotThere) {
  const fs::path project = at("project");
  fs::create_directories(project);
  for (const char* name : {"model", "rows.jsonl"}) fs::rename(at(name), project / name);
  train_in(project, relative(config()));
  fs::rename(project / "out", at("kept"));
  fs::remove_all(project);
  const Outcome o = verify_of(at("kept"));
  EXPECT_EQ(o.code, 3) << o.out << o.err;
  EXPECT_THAT(o.out + o.err, HasSubstr("config.json"));
  EXPECT_THAT(o.out + o.err, HasSubstr("no such file"));
  const Outcome r = qtrain({.words = {"reproduce", at("kept").string(), "--output", at("again").string()}});
  EXPECT_EQ(r.code, 3) << r.err;
  EXPECT_THAT(r.err, HasSubstr("the folder where the run was started"));
}

TEST_F(MovedRun, HoldsWhereItIsSaidWhereItsFilesAre) {
  train_in(at(""), relative(config()));
  fs::create_directories(at("store"));
  fs::rename(rows(), at("store/older.jsonl"));
  fs::rename(model(), at("store/model"));
  Outcome o = verify();
  EXPECT_EQ(o.code, 3) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("--moved OLD=NEW"));
  const std::vector<std::string> of_model{"--steps", "100", "--moved", "model=" + at("store/model").string()};
  o = verify(of_model);
  EXPECT_EQ(o.code, 3) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("rows.jsonl"), HasSubstr("--moved OLD=NEW")));
  std::vector<std::string> of_all = of_model;
  of_all.insert(of_all.end(), {"--moved", rows().string() + "=" + at("store/older.jsonl").string()});
  o = verify(of_all);
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  write_file(rows(), "{\"text\": \"others that lie there now\"}\n");
  EXPECT_EQ(verify(of_all).code, 0) << "these rows are not read";
  std::vector<std::string> again = of_all;
  again.erase(again.begin(), again.begin() + 2);
  again.insert(again.begin(), {"reproduce", output().string(), "--output", at("again").string()});
  EXPECT_THAT(qtrain_ok({.words = again}).err, HasSubstr("bit for bit"));
  change_text(at("store/older.jsonl"), "row 7 of", "row 8 of");
  EXPECT_EQ(verify(of_all).code, 3) << "the rows in that place are not those of the run";
  for (const char* bad : {"model", "=x", "model=", "model=none"}) EXPECT_EQ(verify({"--moved", bad}).code, 2) << bad;
}

// "link/.." is the parent of the folder that the link points to.
TEST_F(MovedRun, HoldsWithNamesAboveLinks) {
  fs::create_directories(at("deep/inner"));
  fs::create_directory_symlink("deep/inner", at("link"));
  for (const char* name : {"model", "rows.jsonl"}) fs::rename(at(name), at("deep") / name);
  Json c = relative(config());
  c.update({{"model_name_or_path", "link/../model"}, {"dataset_name", "link/../rows.jsonl"}});
  train_in(at(""), c);
  const std::string run = at("deep/inner/../../out").string();
  Outcome o = verify_of(run, {"--steps", "100", "--statement", "link/../s.json"});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_TRUE(fs::exists(at("deep/s.json")));
  o = qtrain({.words = {"reproduce", "link/../../out", "--output", "link/../again"}, .folder = folder_.path()});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_TRUE(fs::exists(at("deep/again/manifest.json")));
  EXPECT_FALSE(fs::exists(at("again"))) << "shortened as text";
}

/// Ranks started by a scheduler: on two machines, as far as they know.
class RunOfMachines : public StartedByTorchrun<VerifiedRun> {
 protected:
  static constexpr int kRanks = 2;
  Launch slurm_rank(int number, const Json& config) const {
    const fs::path file = at(fmt::format("rank{}.json", number));
    write_file(file, dump_json(config));
    Launch launch = launch_of({.words = {file.string()}, .folder = folder_.path()});
    launch.environment = {fmt::format("SLURM_PROCID={}", number),
                          fmt::format("SLURM_STEP_NUM_TASKS={}", kRanks),
                          "SLURM_LOCALID=0",
                          "SLURM_STEP_TASKS_PER_NODE=1(x2)",
                          "MASTER_ADDR=127.0.0.1",
                          fmt::format("MASTER_PORT={}", port_)};
    return launch;
  }
  void expect_same_run() const {
    Outcome o = verify();
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_EQ(read_json(output() / "resolved_config.json")["run"]["ranks"], kRanks);
    o = qtrain_ok({.words = {"reproduce", output().string(), "--output", at("again").string()}});
    EXPECT_THAT(o.err, HasSubstr("bit for bit"));
    EXPECT_EQ(read_json(at("again/manifest.json"))["world_size"], kRanks);
  }
};

TEST_F(RunOfMachines, OfSlurmIsDoneAgainOnOne) {
  Process other(slurm_rank(1, config()));
  Process first(slurm_rank(0, config()));
  const Outcome o = first.wait();
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(other.wait().code, 0);
  expect_same_run();
}

TEST_F(RunOfMachines, OfTwoLaunchersIsDoneAgainOnOne) {
  Json c = config();
  c.update({{"nnodes", 2},
            {"master_addr", "127.0.0.1"},
            {"master_port", port_},
            {"zero_stage", 1},
            {"zero_group_size", -1}});
  std::vector<std::unique_ptr<Process>> machines;
  for (int node = 0; node < kRanks; ++node) {
    c["node_rank"] = node;
    const fs::path file = at(fmt::format("node{}.json", node));
    write_file(file, dump_json(c));
    machines.push_back(std::make_unique<Process>(launch_of({.words = {file.string()}, .folder = folder_.path()})));
  }
  for (const auto& machine : machines) {
    const Outcome o = machine->wait();
    ASSERT_EQ(o.code, 0) << o.err;
  }
  expect_same_run();
}

}  // namespace
}  // namespace qtrain::e2e
