// Ranks that share the tokens of each micro-batch: the same run, with less memory on each rank.
#include <fmt/format.h>

#include <map>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

/// Rows with these numbers of tokens, each below 60.
std::string rows_of_tokens(const std::vector<int>& lengths) {
  std::vector<Json> rows;
  unsigned state = 7;
  for (const int length : lengths) {
    Json ids = Json::array();
    for (int i = 0; i < length; ++i) ids.push_back(4 + (state = state * 1664525U + 1013904223U) % 56);
    rows.push_back({{"input_ids", ids}});
  }
  return jsonl(rows);
}

/// The permitted difference from a run on one rank: gradients are the same float32 sums in a different order, over four
/// updates by stochastic gradient descent, which does not amplify small gradients.
constexpr double kLoss = 1e-5, kNorm = 1e-4, kWeight = 2e-5;

class Context : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_ / name; }

  /// Trains all weights with four micro-batches per update. One row is shorter than the number of pieces; several
  /// pieces cut others.
  Json base(const std::string& model) const {
    write_file(at("rows.jsonl"), rows_of_tokens({3, 57, 18, 33, 2, 61, 40, 1, 26, 64, 7, 50, 12, 45, 31, 19}));
    Json config = tiny_run(at("out"));
    config.update({{"model_name_or_path", (kGoldens / model).string()},
                   {"dataset_name", at("rows.jsonl").string()},
                   {"gradient_accumulation_steps", 4},
                   {"optim", "sgd"},
                   {"learning_rate", 0.05},
                   {"weight_decay", 0},
                   {"warmup_steps", 0},
                   {"max_steps", 4},
                   {"device", "cpu"},
                   {"ddp_timeout", 20}});
    return config;
  }
  static Json shared(Json config, int ranks, int sharing) {
    const int micro_batches = config.at("gradient_accumulation_steps").get<int>();
    config.update({{"nproc", ranks},
                   {"context_parallel_size", sharing},
                   {"gradient_accumulation_steps", micro_batches * sharing / ranks}});
    return config;
  }
  /// Trains into a separate folder, which it returns.
  fs::path trained(Json config, const std::string& name) const {
    config["output_dir"] = at(name).string();
    fs::remove_all(at(name));
    train_ok(folder_.path(), config);
    const Json memory = read_json(at(name) / "train_results.json").at("memory");
    EXPECT_EQ(memory.at("allocated"), memory.at("planned").at("total"));
    return at(name);
  }
  static void expect_near(const fs::path& is, const fs::path& wanted, const char* key, double tolerance) {
    const std::vector<double> a = column(history(is, key), key), b = column(history(wanted, key), key);
    ASSERT_EQ(a.size(), b.size()) << key;
    ASSERT_FALSE(a.empty()) << key;
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * std::max(1.0, b[i])) << key << i;
  }
  void expect_as_alone(const Json& config, const std::vector<std::pair<int, int>>& ranks) const {
    const fs::path alone = trained(config, "alone");
    for (const auto& [all, sharing] : ranks) {
      SCOPED_TRACE(fmt::format("{} ranks, {} share tokens", all, sharing));
      const fs::path out = trained(shared(config, all, sharing), "together");
      expect_near(out, alone, "loss", kLoss);
      expect_near(out, alone, "grad_norm", kNorm);
      EXPECT_LT(largest_difference(out, alone), kWeight);
    }
  }
  TempFolder folder_;
};

TEST_F(Context, LlamaIsThatOfOneRank) {
  expect_as_alone(base("llama_gqa3_tied"), {{2, 2}, {4, 2}, {4, 4}});
}

TEST_F(Context, WindowsCapsAndSinksAreThoseOfOneRank) {
  expect_as_alone(base("gemma2"), {{2, 2}, {3, 3}});
  Json experts = base("gpt_oss");
  experts["random_init"] = true;  // the few digits of the golden weights make experts tie
  experts["router_aux_loss_coef"] = 0;
  expect_as_alone(experts, {{4, 2}});
}

TEST_F(Context, PackedRowsAreThoseOfOneRank) {
  Json config = base("qwen3_gqa7_tied");
  config.update({{"packing", true}, {"max_length", 64}, {"per_device_train_batch_size", 1}, {"num_train_epochs", 4}});
  expect_as_alone(config, {{2, 2}, {4, 2}});
}

// Batches with fewer tokens than pieces, and with targets on some ranks only.
TEST_F(Context, BatchesOfAFewTokensAreThoseOfOneRank) {
  Json config = base("llama_gqa3_tied");
  write_file(at("rows.jsonl"), rows_of_tokens({2, 5, 3, 4, 9, 2, 3, 12}));
  config["per_device_train_batch_size"] = 1;
  expect_as_alone(config, {{4, 4}});
}

// When blocks are recomputed, keys are exchanged again.
TEST_F(Context, RecomputedAndAdaptedLayersAreThoseOfOneRank) {
  Json config = base("llama_gqa3_tied");
  config.update({{"use_peft", true}, {"lora_r", 4}, {"lora_dropout", 0}, {"lora_target_modules", "all-linear"}});
  for (const Json& policy : {Json(true), Json("blocks:2"), Json("selective")}) {
    config["gradient_checkpointing"] = policy;
    SCOPED_TRACE(policy.dump());
    expect_as_alone(config, {{2, 2}});
  }
}

// With sharded states and a fixed summation order, results have the same bits, whichever rank has which micro-batches.
TEST_F(Context, DividedStatesAndOrderedSumsHaveTheSameBits) {
  Json config = base("llama_gqa3_tied");
  config.update({{"deterministic_reduce", true}, {"optim", "adamw_torch"}, {"learning_rate", 0.005}});
  const std::string wanted = bytes_of(trained(shared(config, 2, 2), "alone") / "model.safetensors");
  for (const auto& [ranks, stage] : {std::pair(4, 0), {2, 1}, {4, 2}, {4, 3}}) {
    Json divided = shared(config, ranks, 2);
    divided["zero_stage"] = stage;
    EXPECT_EQ(bytes_of(trained(divided, "together") / "model.safetensors"), wanted) << ranks << " ranks, " << stage;
  }
}

// In the last batches only some ranks have rows.
TEST_F(Context, EvaluationIsThatOfOneRank) {
  Json config = base("llama_gqa3_tied");
  write_file(at("eval.jsonl"), rows_of_tokens({21, 5, 44, 2, 63}));
  config.update({{"eval_dataset_name", at("eval.jsonl").string()},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 4},
                 {"eval_on_start", true},
                 {"per_device_eval_batch_size", 2}});
  const fs::path alone = trained(config, "alone");
  for (const auto& [ranks, stage] : {std::pair(2, 0), {4, 3}}) {
    Json together = shared(config, ranks, 2);
    together["zero_stage"] = stage;
    const fs::path out = trained(together, "together");
    const std::vector<Json> rows = history(out, "eval_loss"), wanted = history(alone, "eval_loss");
    ASSERT_EQ(rows.size(), 2U);
    // Before the first update, only the summation order of doubles differs.
    EXPECT_NEAR(rows[0].at("eval_loss").get<double>(), wanted[0].at("eval_loss").get<double>(), 1e-12);
    EXPECT_NEAR(rows[1].at("eval_loss").get<double>(), wanted[1].at("eval_loss").get<double>(), kLoss);
  }
}

TEST_F(Context, ARunGoesOnWithOthers) {
  Json config = base("llama_gqa3_tied");
  config.update({{"save_strategy", "steps"}, {"save_steps", 2}});
  const fs::path alone = trained(config, "alone");
  const Outcome outcome =
      train_ok(folder_.path(), shared(config, 4, 2),
               {"--resume", (alone / "checkpoint-2").string(), "output_dir=" + at("together").string()});
  EXPECT_THAT(outcome.err, HasSubstr("context_parallel_size 2 (was 1)"));
  EXPECT_LT(largest_difference(at("together"), alone), kWeight);
  Json other = shared(config, 2, 2);
  other["gradient_accumulation_steps"] = 2;  // as if each rank had its own rows
  write_file(at("config.json"), dump_json(other));
  EXPECT_THAT(qtrain({.words = {at("config.json").string(), "--resume", (alone / "checkpoint-2").string()}}).err,
              HasSubstr("context_parallel_size = 1, the config says 2"));
}

// Changes sharding and token sharing together: the bits are the same if the same number of ranks share tokens,
// otherwise results are equal up to the summation order.
TEST_F(Context, ARunGoesOnWithAnotherDivision) {
  Json config = base("llama_gqa3_tied");
  config.update({{"deterministic_reduce", true},
                 {"optim", "adamw_torch"},
                 {"learning_rate", 0.005},
                 {"save_strategy", "steps"},
                 {"save_steps", 2}});
  const auto division = [&](int ranks, int sharing, int stage) {
    Json c = shared(config, ranks, sharing);
    c["zero_stage"] = stage;
    return c;
  };
  const auto gone_on = [&](Json c, const fs::path& from) {
    c["output_dir"] = at("more").string();
    fs::remove_all(at("more"));
    const Outcome outcome = train_ok(folder_.path(), c, {"--resume", (from / "checkpoint-2").string()});
    EXPECT_THAT(outcome.err, HasSubstr("resumed from"));
    return bytes_of(at("more/model.safetensors"));
  };
  const fs::path two = trained(division(2, 2, 0), "two"), four = trained(division(4, 2, 3), "four");
  const std::string wanted = bytes_of(two / "model.safetensors");
  EXPECT_EQ(gone_on(division(4, 2, 3), two), wanted);
  EXPECT_EQ(gone_on(division(2, 2, 3), four), wanted);
  EXPECT_EQ(gone_on(division(8, 2, 2), four), wanted);
  for (const Json& other : {division(4, 4, 1), division(2, 1, 3), division(1, 1, 0)}) {
    gone_on(other, four);
    EXPECT_LT(largest_difference(at("more"), two), 1e-4) << other;  // AdamW amplifies small gradients
  }
}

// With long rows, a rank needs memory for its part of the activations and for what it gathers, exactly as planned.
TEST_F(Context, MemoryFallsAsPlanned) {
  Json config = base("llama_gqa3_tied");
  write_file(at("rows.jsonl"), rows_of_tokens({4099, 70}));
  config.update({{"per_device_train_batch_size", 1},
                 {"gradient_accumulation_steps", 2},
                 {"max_steps", 1},
                 {"max_length", nullptr},
                 {"eval_dataset_name", at("rows.jsonl").string()},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 1}});
  std::map<int, Json> plans;
  for (const int sharing : {1, 2, 4}) {
    const fs::path out = trained(shared(config, sharing, sharing), fmt::format("by_{}", sharing));
    const Json memory = read_json(out / "train_results.json").at("memory");
    const std::string said = qtrain_ok({.words = {"estimate", at("config.json").string(), "--json"}}).out;
    EXPECT_EQ(Json::parse(said).at("memory"), memory.at("planned")) << sharing;
    if (sharing > 1) {
      EXPECT_THAT(qtrain_ok({.words = {"estimate", at("config.json").string()}}).out,
                  HasSubstr(fmt::format("4099 tokens, from the data, shared by {} ranks", sharing)));
    }
    plans[sharing] = memory.at("planned");
    expect_near(out, at("by_1"), "loss", kLoss);
    expect_near(out, at("by_1"), "grad_norm", kNorm);
    EXPECT_LT(largest_difference(out, at("by_1")), kWeight);
  }
  const auto of = [&](int sharing, const char* part) { return plans[sharing].at(part).get<double>(); };
  EXPECT_EQ(of(1, "gathered_keys"), 0);
  EXPECT_NEAR(of(4, "gathered_keys") / of(2, "gathered_keys"), 1, 0.01);  // except for padding of the last piece
  for (const int sharing : {2, 4}) {
    EXPECT_LT(of(sharing, "activations"), of(1, "activations") / sharing * 1.05);
    EXPECT_LT(of(sharing, "activations") + of(sharing, "gathered_keys"), of(1, "activations"));
  }
}

// Collectives within groups are distinguished from those of all ranks.
TEST_F(Context, ATimelineIsHeldAgainstTheScheduleOfItsRun) {
  Json config = shared(base("llama_gqa3_tied"), 2, 2);
  config.update({{"profile", true}, {"max_steps", 6}, {"threads", 1}});
  trained(config, "out");
  write_file(at("run.json"), dump_json(config));
  EXPECT_THAT(read_text(at("out/trace-rank-1.json")), HasSubstr("\"keys: all_to_all of"));
  const std::vector<std::string> words{"estimate", at("run.json").string(), "--trace", at("out").string()};
  EXPECT_THAT(qtrain_ok({.words = words}).out, HasSubstr(" updates of 2 ranks, median"));
}

/// Three key heads with two query heads each.
class ContextHeads : public Context {
 protected:
  Json base() const {
    Json model = read_json(kGoldens / "llama_gqa3_tied/config.json");
    model.update({{"num_attention_heads", 6}, {"num_key_value_heads", 3}});
    fs::create_directories(at("model"));
    write_file(at("model/config.json"), dump_json(model));
    Json config = Context::base("llama_gqa3_tied");
    config.update({{"model_name_or_path", at("model").string()}, {"random_init", true}});
    return config;
  }
};

// All heads at once, all but one, and one.
TEST_F(ContextHeads, InPartsHaveTheSameBits) {
  for (const Json& more : {Json{{"zero_stage", 0}}, Json{{"zero_stage", 3}, {"gradient_checkpointing", true}}}) {
    Json config = shared(base(), 2, 2);
    config.update(more);
    const std::string wanted = bytes_of(trained(config, "all") / "model.safetensors");
    for (const int heads : {3, 2, 1}) {
      config["context_parallel_heads"] = heads;
      EXPECT_EQ(bytes_of(trained(config, "some") / "model.safetensors"), wanted) << heads;
    }
  }
}

TEST_F(ContextHeads, InPartsAreThoseOfOneRank) {
  Json config = base();
  config["context_parallel_heads"] = 1;
  expect_as_alone(config, {{4, 4}});
}

// The keys of the next heads are gathered while the current ones are used: in a separate lane, during a block.
TEST_F(ContextHeads, ComeWhileOthersAreUsed) {
  Json config = shared(base(), 2, 2);
  config.update({{"context_parallel_heads", 1}, {"profile", true}});
  const Json events = read_json(trained(config, "out") / "trace-rank-0.json").at("traceEvents");
  std::map<std::string, int> lanes;
  for (const Json& e : events)
    if (e.at("name") == "thread_name") lanes[e.at("args").at("name")] = e.at("tid");
  ASSERT_TRUE(lanes.contains("keys"));
  int gathers = 0;
  for (const Json& e : events) {
    if (!e.at("name").get<std::string>().starts_with("keys: all_gather")) continue;
    EXPECT_EQ(e.at("tid"), lanes["keys"]);
    ++gathers;
  }
  // Keys and values, two pieces each, three parts, two layers, forward and backward, four batches, four steps.
  EXPECT_EQ(gathers, 2 * 2 * 3 * 2 * 2 * 4 * 4);
}

TEST_F(ContextHeads, TakeLessMemoryInParts) {
  Json config = shared(base(), 4, 4);
  const auto gathered = [&](int heads) {
    config["context_parallel_heads"] = heads;
    write_file(at("config.json"), dump_json(config));
    const Json plan = Json::parse(qtrain_ok({.words = {"estimate", at("config.json").string(), "--json"}}).out);
    return plan.at("memory").at("gathered_keys").get<double>();
  };
  // With all three heads at once: keys, values and their gradients. With one head at a time: keys and values twice,
  // their gradients, and for this rank five such buffers and four for two query heads.
  const double three = 4 * 3 * 4, one = 6 * 4 + 5 + 4 * 2;
  EXPECT_NEAR(gathered(1) / gathered(0), one / three, 0.05);
  EXPECT_EQ(gathered(3), gathered(0));
}

TEST_F(Context, WhatCannotBeSharedIsRefused) {
  const auto refused = [&](Json config, const std::string& why) {
    write_file(at("config.json"), dump_json(config));
    const Outcome outcome = qtrain({.words = {at("config.json").string()}});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(why));
  };
  Json config = base("llama_gqa3_tied");
  refused(shared(config, 2, 3), "does not divide");
  refused(shared(config, 1, 2), "does not divide the 1 rank of the run");
  config.update({{"use_peft", true}, {"lora_dropout", 0.1}});
  refused(shared(config, 2, 2), "lora_dropout is 0.1");
  Json experts = base("mixtral_balanced");
  refused(shared(experts, 2, 2), "the router loss");
}

}  // namespace
}  // namespace qtrain::e2e
