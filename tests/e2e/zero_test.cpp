// Training state that is sharded among ranks: the same run in less memory.
#include <fmt/format.h>
#include <signal.h>

#include <fstream>

#include "tests/e2e/zero.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Zero, AllWeightsHaveTheSameBits) {
  expect_the_same(base());
}

// There are more ranks than parts of some units.
TEST_F(Zero, ManyRanksHaveTheSameBits) {
  const auto alone = results(base());
  for (const int stage : {1, 3}) EXPECT_EQ(results(divided(base(), 6, stage)), alone) << stage;
}

TEST_F(Zero, OneBlockAtATimeHasTheSameBitsInLessMemory) {
  Json config = divided(base(), 2, 3);
  const auto gathered = [&] {
    return read_json(at("out/train_results.json")).at("memory").at("planned").at("gathered_units").get<double>();
  };
  const auto two = results(config);
  const double whole = gathered();
  config["overlap_comm"] = false;
  EXPECT_EQ(results(config), two);
  EXPECT_LT(gathered(), whole);
}

/// How many exchanges overlap with the computation of a block.
int exchanged_beside(const Json& trace) {
  std::vector<std::pair<double, double>> blocks, exchanges;
  for (const Json& e : trace.at("traceEvents")) {
    if (e.at("ph") != "X") continue;
    const std::string name = e.at("name");
    const double begin = e.at("ts"), end = begin + e.at("dur").get<double>();
    if (name.find("of block") != std::string::npos) blocks.emplace_back(begin, end);
    if (name.starts_with("all_")) exchanges.emplace_back(begin, end);
  }
  EXPECT_FALSE(blocks.empty());
  int beside = 0;
  for (const auto& block : blocks)
    for (const auto& exchange : exchanges)
      if (block.first < exchange.second && exchange.first < block.second) ++beside;
  return beside;
}

// The gradients of a block are larger than a bucket.
TEST_F(Zero, TheTimelineShowsWhatRunsBesideTheComputation) {
  Json config = base();
  Json model = read_json(at("model/config.json"));
  model.update({{"hidden_size", 256}, {"intermediate_size", 512}});
  write_file(at("model/config.json"), dump_json(model));
  for (const int stage : {0, 1, 3}) {
    config = divided(config, 2, stage);
    config.update({{"profile", true},
                   {"save_strategy", "no"},
                   {"deterministic_reduce", stage == 3},
                   {"overlap_comm", true},
                   {"ddp_bucket_cap_mb", 1}});
    const auto beside = [&] {
      fs::remove_all(at("out"));
      train_ok(folder_.path(), config);
      int sum = 0;
      for (const int rank : {0, 1}) {
        const Json trace = read_json(at(fmt::format("out/trace-rank-{}.json", rank)));
        EXPECT_EQ(trace.at("traceEvents").back().at("pid"), rank);
        sum += exchanged_beside(trace);
      }
      return sum;
    };
    EXPECT_GT(beside(), 0) << "stage " << stage;
    config["overlap_comm"] = false;
    if (stage < 2) {
      EXPECT_EQ(beside(), 0) << "stage " << stage;
    }
  }
}

// Without a fixed order of micro-batches, sums still have a fixed order of ranks.
TEST_F(Zero, BucketsAndOverlapDoNotChangeTheBits) {
  for (const int stage : {0, 1}) {
    Json config = divided(base(), 3, stage);
    config["deterministic_reduce"] = false;
    const auto measured = results(config);
    config["ddp_bucket_cap_mb"] = 1;
    EXPECT_EQ(results(config), measured) << stage;
    config["overlap_comm"] = false;
    EXPECT_EQ(results(config), measured) << stage;
  }
}

// Weights that are saved in bfloat16 have exact float32 masters.
TEST_F(Zero, MasterWeightsHaveTheSameBits) {
  Json config = base();
  config.update({{"dtype", "bfloat16"}, {"optim", "adamw_8bit"}, {"gradient_checkpointing", "blocks:2"}});
  expect_the_same(config);
}

// The random numbers of an element do not depend on the rank that updates it.
TEST_F(Zero, StochasticRoundingHasTheSameBits) {
  Json config = base();
  config.update({{"dtype", "bfloat16"}, {"optim_args", "stochastic_rounding=true"}});
  expect_the_same(config);
}

// Parts of a matrix cannot be updated separately.
TEST_F(Zero, WholeMatricesHaveTheSameBits) {
  for (const char* optimizer : {"muon", "adafactor"}) {
    Json config = base();
    config["optim"] = optimizer;
    SCOPED_TRACE(optimizer);
    expect_the_same(config);
  }
}

TEST_F(Zero, AdaptersHaveTheSameBits) {
  Json config = base();
  config.update(adapter());
  config["lora_modules_to_save"] = {"embed_tokens"};
  expect_the_same(config);
}

TEST_F(Zero, AdaptersOfQuantizedWeightsHaveTheSameBits) {
  Json config = base();
  config.update(adapter());
  config.update(golden());
  config["load_in_4bit"] = true;
  expect_the_same(config);
}

// Ranks compute the factors alone and write whole tensors of files.
TEST_F(Zero, AdaptersFromTheBaseWeightsHaveTheSameBits) {
  for (const char* init : {"pissa", "loftq"}) {
    Json config = base();
    config.update(adapter());
    config.update(golden());
    config.update({{"init_lora_weights", init}, {"lora_r", 4}});
    if (std::string(init) == "loftq") config["load_in_4bit"] = true;
    const auto alone = results(config);
    EXPECT_FALSE(alone[1].at("adapter_model.safetensors").empty());
    for (const auto& [ranks, stage] : {std::pair(2, 2), {3, 3}}) {
      EXPECT_EQ(results(divided(config, ranks, stage)), alone) << init << ", stage " << stage;
      train_ok(folder_.path(), divided(config, 3 - ranks % 2, 1),
               {"--resume", at("out/checkpoint-2").string(), "output_dir=" + at("more").string()});
      EXPECT_EQ(tensor_files(at("more")), alone[0]) << init << ", after stage " << stage;
      fs::remove_all(at("more"));
    }
  }
}

// Experts: parameters from slices of files, and factors that files store in another order.
TEST_F(Zero, ExpertsHaveTheSameBits) {
  for (const char* curve : {"qwen3_moe_full", "gpt_oss_lora"}) {
    const fs::path folder = kGoldens / "curves" / curve;
    const auto run = [&](int ranks, int stage) {
      fs::remove_all(at("out"));
      qtrain_ok({.words = {"config.json", "output_dir=" + at("out").string(), "device=cpu",
                           "per_device_train_batch_size=1", "deterministic_reduce=true",
                           fmt::format("gradient_accumulation_steps={}", 4 / ranks), fmt::format("nproc={}", ranks),
                           fmt::format("zero_stage={}", stage), "max_steps=3", "save_strategy=steps", "save_steps=3"},
                 .folder = folder});
      return std::vector{tensor_files(at("out")), tensor_files(at("out/checkpoint-3"))};
    };
    const auto alone = run(1, 0);
    for (const int stage : {1, 2, 3}) EXPECT_EQ(run(2, stage), alone) << curve << ", stage " << stage;
  }
}

// Without a fixed order, only the last bits of sums differ.
TEST_F(Zero, WithoutAnOrderOnlyTheLastBitsDiffer) {
  Json config = base();
  config.update({{"deterministic_reduce", false}, {"save_strategy", "no"}});
  train_ok(folder_.path(), config);
  const std::vector<double> alone = column(history(at("out"), "loss"), "loss");
  for (const int stage : {1, 2, 3}) {
    fs::remove_all(at("out"));
    train_ok(folder_.path(), divided(config, 3, stage));
    const std::vector<double> shared = column(history(at("out"), "loss"), "loss");
    ASSERT_EQ(shared.size(), alone.size());
    // float32 sums of gradients in a different order, over four updates.
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-4) << "stage " << stage;
  }
}

// The gradients of two ranks are rounded to 8 bits, each by up to 2^-9, and with stage 0 their sums are too: the loss
// decrease of updates by plain gradient descent differs by about the same factor. Memory is as planned.
TEST_F(Zero, RoundedGradientsGiveANearCurve) {
  Json config = divided(base(), 2, 0);
  config.update({{"deterministic_reduce", false}, {"optim", "sgd"}, {"warmup_steps", 0}, {"save_strategy", "no"}});
  const auto losses_at = [&](double rate) {
    config["learning_rate"] = rate;
    fs::remove_all(at("out"));
    train_ok(folder_.path(), config);
    return column(history(at("out"), "loss"), "loss");
  };
  const std::vector<double> untrained = losses_at(0), exact = losses_at(0.1);
  config["communication_data_type"] = "bf16";
  for (const int stage : {0, 1, 2, 3}) {
    planned_memory(divided(config, 2, stage));
    const std::vector<double> rounded = column(history(at("out"), "loss"), "loss");
    ASSERT_EQ(rounded.size(), exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double change = std::abs(exact[i] - untrained[i]);
      EXPECT_NEAR(rounded[i], exact[i], 0x1p-9 * change + 1e-6) << "stage " << stage << ", step " << i + 1;
      EXPECT_EQ(i > 0, std::abs(rounded[i] - exact[i]) > 1e-7) << "stage " << stage << ", step " << i + 1;
    }
  }
}

TEST_F(Zero, RoundedGradientsInOrderHaveTheSameBits) {
  Json config = base();
  config["max_steps"] = 2;
  const auto exact = results(config);
  config["communication_data_type"] = "bf16";
  const auto alone = results(config);
  EXPECT_NE(alone, exact);
  for (const auto& [ranks, stage] : {std::pair(2, 0), {3, 1}, {2, 3}})
    EXPECT_EQ(results(divided(config, ranks, stage)), alone) << ranks << " ranks, stage " << stage;
}

TEST_F(Zero, ARunGoesOnWithOtherRanksAndAnotherStage) {
  Json config = base();
  const auto alone = results(config);
  const std::vector<std::pair<int, int>> from{{2, 3}, {3, 2}, {1, 0}, {2, 3}}, to{{3, 1}, {1, 0}, {2, 3}, {3, 3}};
  for (std::size_t i = 0; i < from.size(); ++i) {
    fs::remove_all(at("out"));
    train_ok(folder_.path(), divided(config, from[i].first, from[i].second));
    const Outcome outcome =
        train_ok(folder_.path(), divided(config, to[i].first, to[i].second),
                 {"--resume", at("out/checkpoint-2").string(), "output_dir=" + at("more").string()});
    EXPECT_THAT(outcome.err, HasSubstr("resumed from"));
    EXPECT_EQ(tensor_files(at("more")), alone[0]) << i;
    fs::remove_all(at("more"));
  }
}

// The norms of the rows of W + B A are those of the adapter that was loaded last.
TEST_F(Zero, AnAdapterThatGoesOnFromAnotherOneIsResumed) {
  Json config = base();
  config.update(golden());
  Json first = config;
  first.update(adapter());
  first.update({{"output_dir", at("first").string()}, {"save_strategy", "no"}, {"max_steps", 2}, {"seed", 7}});
  train_ok(folder_.path(), first);
  config["adapter_name_or_path"] = at("first").string();
  const auto alone = results(config);
  for (const auto& [ranks, stage] : {std::pair(2, 3), {3, 1}}) {
    train_ok(folder_.path(), divided(config, ranks, stage),
             {"--resume", at("out/checkpoint-2").string(), "output_dir=" + at("more").string()});
    EXPECT_EQ(tensor_files(at("more")), alone[0]) << ranks << " ranks, stage " << stage;
    fs::remove_all(at("more"));
  }
}

// Evaluation rows are divided unevenly, and one rank may have none. The best model is that of the first checkpoint,
// which has the larger loss.
TEST_F(Zero, EvaluationAndTheBestModelAreThoseOfOneRank) {
  Json config = base();
  config.update({{"eval_dataset_name", config.at("dataset_name")},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 2},
                 {"load_best_model_at_end", true},
                 {"metric_for_best_model", "eval_loss"},
                 {"greater_is_better", true},
                 {"per_device_eval_batch_size", 4}});
  const auto losses = [&] { return column(history(at("out"), "eval_loss"), "eval_loss"); };
  const auto model = [&](const char* folder) { return bytes_of(at(folder) / "model.safetensors"); };
  results(config);
  const std::vector<double> alone = losses();
  const std::string best = model("out");
  ASSERT_EQ(alone.size(), 2U);
  ASSERT_GT(alone[0], alone[1]);
  EXPECT_EQ(best, model("out/checkpoint-2"));
  for (const auto& [ranks, stage] : {std::pair(3, 3), {2, 1}}) {
    SCOPED_TRACE(stage);
    results(divided(config, ranks, stage));
    const std::vector<double> shared = losses();
    ASSERT_EQ(shared.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(shared[i], alone[i], 1e-12);  // f64 sums in a different order
    EXPECT_EQ(model("out"), best);
  }
}

TEST_F(Zero, MemoryIsThatOfThePlanAndFallsWithEachStage) {
  Json config = base();
  config.update({{"save_strategy", "no"}, {"max_steps", 1}, {"deterministic_reduce", false}});
  std::map<int, Json> plans;
  for (const int stage : {0, 1, 2, 3}) {
    plans[stage] = planned_memory(divided(config, 3, stage));
  }
  const auto of = [&](int stage, const char* part) { return plans[stage].at(part).get<double>(); };
  EXPECT_LT(of(1, "optimizer"), of(0, "optimizer") * 0.5);
  EXPECT_LT(of(2, "gradients"), of(1, "gradients") * 0.5);
  EXPECT_LT(of(3, "weights"), of(2, "weights") * 0.5);
}

TEST_F(Zero, MemoryWithAFixedOrderOfSumsIsThatOfThePlan) {
  Json config = base();
  config.update({{"save_strategy", "no"}, {"max_steps", 1}});
  for (const int stage : {1, 2, 3}) planned_memory(divided(config, 2, stage));
}

TEST_F(Zero, MemoryOfAdaptersIsThatOfThePlan) {
  Json config = base();
  config.update(adapter());
  config.update({{"save_strategy", "no"}, {"max_steps", 1}, {"deterministic_reduce", false}});
  std::map<int, Json> plans;
  for (const int stage : {1, 3}) plans[stage] = planned_memory(divided(config, 3, stage));
  EXPECT_LT(plans[3].at("weights").get<double>(), plans[1].at("weights").get<double>() * 0.5);
  config["load_in_4bit"] = true;
  planned_memory(config);
  for (const int stage : {2, 3}) planned_memory(divided(config, 3, stage));
}

TEST_F(Zero, ALostRankEndsTheRun) {
  Json config = divided(base(), 3, 3);
  config.update({{"max_steps", 100000}, {"save_total_limit", 1}, {"ddp_timeout", 4}});
  write_file(at("run.json"), dump_json(config));
  Process process(launch_of({.words = {at("run.json").string()}}));
  ASSERT_TRUE(process.waits_for("checkpoint-4")) << process.said();
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", process.pid()));
  pid_t first = 0, second = 0;
  file >> first >> second;
  ::kill(second, SIGKILL);
  EXPECT_EQ(process.wait().code, 7);
  EXPECT_FALSE(checkpoint_names(at("out")).empty());
}

// Ranks that share weights stop an evaluation together.
TEST_F(Zero, AStopOfOneRankEndsAnEvaluation) {
  std::string rows;
  for (int i = 0; i < 20'000; ++i) rows += "{\"input_ids\": [5, 6, 7, 8, 9, 10, 11]}\n";
  write_file(at("rows.jsonl"), rows);
  Json config = divided(base(), 3, 3);
  config.update({{"eval_dataset_name", at("rows.jsonl").string()},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 1},
                 {"eval_on_start", true},
                 {"per_device_eval_batch_size", 1},
                 {"ddp_timeout", 6}});
  write_file(at("run.json"), dump_json(config));
  Launch launch = launch_of({.words = {at("run.json").string()}});
  launch.columns = 80;
  launch.environment = {"TERM=xterm"};
  Process process(launch);
  ASSERT_TRUE(process.waits_for("evaluating")) << process.said();
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", process.pid()));
  pid_t pids[3] = {};
  for (pid_t& pid : pids) file >> pid;
  ::kill(pids[2], SIGTERM);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.code, 75) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("eval_loss")));
  for (const pid_t pid : pids) EXPECT_NE(::kill(pid, 0), 0);
}

}  // namespace
}  // namespace qtrain::e2e
