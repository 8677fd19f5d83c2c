// Predicted times of `qtrain estimate`, and its remarks when memory is short or plentiful.
#include "tests/e2e/estimates.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

// The time follows from the GPU's limits: the minimum for the passes, then the update of the weights.
TEST_F(EstimateOf, NamesWhatLimitsTheTime) {
  const std::string model = wide_model();
  const auto limit = [&](const Json& change, const char* gpu) {
    Json c = config({{"model_name_or_path", model}, {"max_length", 200}, {"bf16", true}, {"max_steps", 1}});
    c.update(change);
    const Json e = json(c, {"--no_data", "--gpu", gpu});
    const Json& u = e.at("update");
    double kernels = 0;
    for (const char* part : {"computing", "attention", "memory_traffic", "adapter_traffic", "launches"})
      kernels += u.at(part).get<double>();
    const double longest = std::max({kernels, u.at("host_traffic").get<double>(), u.at("loading").get<double>()});
    EXPECT_NEAR(u.at("seconds").get<double>(), longest + u.at("update_of_weights").get<double>(), 1e-9);
    EXPECT_NEAR(e.at("seconds").get<double>(), u.at("seconds").get<double>(), 1e-9);
    return e.at("limit").get<std::string>();
  };
  EXPECT_EQ(limit({{"per_device_train_batch_size", 32}}, "H100"), "compute");
  EXPECT_EQ(limit({{"max_length", 8}, {"per_device_train_batch_size", 1}, {"use_peft", true}}, "H100"), "the launches");
  EXPECT_EQ(limit({{"max_length", 8}, {"gradient_accumulation_steps", 1}}, "H100"), "the update of the weights");
  EXPECT_EQ(limit({{"max_length", 8}, {"gradient_accumulation_steps", 64}, {"weight_offload", true}}, "H100"),
            "the link to the host");
}

// Steps of 16,384 tokens on an H200. `step` is the name of the same step in bench/step_cases.json.
struct PredictedSpeed {
  const char *name, *model;
  Json changes;
  const char* step;
};
const std::vector<PredictedSpeed>& predicted_speeds() {
  const Json whole{{"gradient_checkpointing", false}, {"per_device_train_batch_size", 8}};
  Json qlora{{"use_peft", true},
             {"lora_r", 16},
             {"lora_dropout", 0},
             {"dtype", "bfloat16"},
             {"lora_target_modules", "all-linear"},
             {"load_in_4bit", true},
             {"bnb_4bit_use_double_quant", true}};
  Json small = qlora, large = qlora;
  small.update(whole);
  large.update(
      {{"gradient_checkpointing", false}, {"per_device_train_batch_size", 4}, {"gradient_accumulation_steps", 2}});
  Json fp8 = large;
  fp8.erase("bnb_4bit_use_double_quant");
  fp8.update({{"load_in_4bit", false}, {"load_in_fp8", true}, {"fp8", true}});
  static const std::vector<PredictedSpeed> kSpeeds{{"Qwen3-0.6B, full", "Qwen3-0.6B", whole, "qwen3-0.6b"},
                                                   {"Qwen3-0.6B, QLoRA", "Qwen3-0.6B", small, "qwen3-0.6b-qlora"},
                                                   {"Llama-3.1-8B, QLoRA", "Llama-3.1-8B", large, "llama-3.1-8b-qlora"},
                                                   {"Llama-3.1-8B, FP8", "Llama-3.1-8B", fp8, "llama-3.1-8b-fp8"},
                                                   {"Qwen3-8B, full, 8-bit AdamW",
                                                    "Qwen3-8B",
                                                    {{"optim", "adamw_8bit"},
                                                     {"gradient_checkpointing", "auto"},
                                                     {"per_device_train_batch_size", 2},
                                                     {"gradient_accumulation_steps", 4}},
                                                    "qwen3-8b-adamw8bit"}};
  return kSpeeds;
}

// scripts/predict_times.py predicts these steps kernel by kernel.
TEST_F(EstimateOf, StepsTakeAsLongAsTheirKernels) {
  const Json steps = read_json(source_folder() / "bench/step_cases.json").at("cases");
  for (const PredictedSpeed& c : predicted_speeds()) {
    Json run{{"model_name_or_path", (source_folder() / "examples/hardware" / c.model).string()},
             {"bf16", true},
             {"max_length", 2048},
             {"max_steps", 1000},
             {"gradient_accumulation_steps", 1},
             {"output_dir", "out"}};
    run.update(c.changes);
    const Json e = json(run, {"--no_data", "--gpu", "H200", "--price_per_hour", "3"});
    const auto range = [&](const Json& of, const std::string& key) {
      const Json& r = of.at(key + "_range");
      const double low = r.at("low"), high = r.at("high"), usual = of.at(key);
      EXPECT_LE(low, usual) << c.name << ": " << key;
      EXPECT_LE(usual, high) << c.name << ": " << key;
      EXPECT_LE(high / low, 1.65) << c.name << ": " << key;
      return std::pair(low, high);
    };
    const auto [low, high] = range(e, "tokens_per_second");
    double ms = 0;
    for (const auto& [group, value] : steps.at(c.step).at("predicted_ms").items()) ms += value.get<double>();
    const double by_kernels = 16384 / (ms / 1e3);
    EXPECT_LE(low, by_kernels) << c.name;
    EXPECT_GE(high, by_kernels) << c.name;
    EXPECT_NEAR(e.at("tokens_per_second").get<double>(), by_kernels, 0.1 * by_kernels) << c.name;
    EXPECT_NEAR(range(e, "seconds").second, 1000 * 16384 / low, 0.01) << c.name;
    EXPECT_NEAR(range(e, "cost").first, 1000 * 16384 / high / 3600 * 3, 1e-4) << c.name;
    EXPECT_NEAR(range(e.at("update"), "seconds").second, 16384 / low, 1e-5) << c.name;
    for (const Json& card : e.at("cards")) {
      if (card.at("name") == "H200") {
        EXPECT_NEAR(range(card, "tokens_per_second").first, low, 0.05 * low) << c.name;
      }
    }
  }
}

// A given fraction yields a single figure, not a range.
TEST_F(EstimateOf, AGivenShareIsNoRange) {
  const Json c = config({{"bf16", true}, {"max_length", 200}, {"max_steps", 7}});
  for (const std::vector<std::string>& where : {std::vector<std::string>{}, {"--nodes", "1"}}) {
    std::vector<std::string> words{"--no_data", "--gpu", "H100", "--mfu", "0.37"};
    words.insert(words.end(), where.begin(), where.end());
    const Json e = json(c, words);
    for (const char* key : {"tokens_per_second", "seconds", "flops_per_second"}) {
      const Json& range = e.at(std::string(key) + "_range");
      EXPECT_EQ(range.at("low"), e.at(key)) << key;
      EXPECT_EQ(range.at("high"), e.at(key)) << key;
    }
    const std::string text = estimate(c, words).out;
    EXPECT_THAT(text, ::testing::ContainsRegex("speed +about [0-9]+ tokens/s [(]predicted[)]\n"));
    EXPECT_THAT(text, ::testing::ContainsRegex("time +about [0-9.]+ m?s [(]"));
  }
  const std::vector<std::string> usual{"--no_data", "--gpu", "H100", "--price_per_hour", "1000000000"};
  const std::string text = estimate(c, usual).out;
  EXPECT_THAT(text, ::testing::ContainsRegex("speed +about [0-9]+ to [0-9]+ tokens/s [(]predicted[)]\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("time +about [0-9.]+ to [0-9.]+ m?s [(]"));
  EXPECT_THAT(text, ::testing::ContainsRegex("cost +about [0-9.]+ to [0-9.]+\n"));
}

// Adapters take time in addition to their layers, with one rank and with several.
TEST_F(EstimateOf, MoreAdaptersAreSlower) {
  const std::string model = wide_model();
  for (const std::vector<std::string>& where : {std::vector<std::string>{}, {"--nodes", "1"}}) {
    const auto low = [&](const char* targets) {
      std::vector<std::string> words{"--no_data", "--gpu", "H200"};
      words.insert(words.end(), where.begin(), where.end());
      const Json c = config({{"model_name_or_path", model},
                             {"bf16", true},
                             {"max_length", 512},
                             {"use_peft", true},
                             {"lora_target_modules", targets}});
      return json(c, words).at("tokens_per_second_range").at("low").get<double>();
    };
    EXPECT_LT(low("all-linear"), 0.95 * low("q_proj"));
  }
}

// Each suggested way to fit is a run that the same command plans with these bytes.
TEST_F(EstimateOf, WaysToFitAreWhatTheyCost) {
  const Json c = config({{"model_name_or_path", wide_model()},
                         {"max_length", 512},
                         {"bf16", true},
                         {"per_device_train_batch_size", 8},
                         {"eval_split", 0}});
  const auto hold = [&](const Json& e, const Json& other, const char* gpu) {
    ASSERT_EQ(e.at("ways_to_fit").size(), 3u);
    bool same = false;
    for (const Json& way : e.at("ways_to_fit")) {
      Json changed = other;
      changed.update(way.at("changes"));
      const Json planned = json(changed, {"--no_data", "--gpu", gpu});
      EXPECT_EQ(planned.at("memory").at("total"), way.at("total")) << way;
      EXPECT_EQ(e.at("memory").at("total").get<std::int64_t>() - way.at("saves").get<std::int64_t>(), way.at("total"));
      EXPECT_NEAR(e.at("tokens_per_second").get<double>() / planned.at("tokens_per_second").get<double>(),
                  way.at("slowdown").get<double>(), 1e-6)
          << way;
      EXPECT_EQ(way.at("same_result").get<bool>(), way.at("costs") == "") << way;
      same = same || way.at("same_result").get<bool>();
    }
    EXPECT_TRUE(same) << "at least one of them leaves the result the same";
  };
  const Outcome large = estimate(c, {"--no_data", "--gpu", "RTX 3080", "--json"});
  EXPECT_EQ(large.code, 4);
  const Json e = parse_json(large.out, "estimate");
  EXPECT_EQ(e.at("limit"), "memory size");
  hold(e, c, "RTX 3080");
  // Nearly full: as many rows as take 95 % of the GPU's memory.
  Json full = c;
  full.update({{"use_peft", true}, {"per_device_train_batch_size", 1}});
  const auto total = [&](std::int64_t rows) {
    full["per_device_train_batch_size"] = rows;
    return json(full, {"--no_data", "--gpu", "H200", "operand_copies=false"}).at("memory").at("total").get<double>();
  };
  const double row = (total(5) - total(1)) / 4,
               there = json(full, {"--no_data", "--gpu", "RTX 3090"}).at("device_memory");
  full["per_device_train_batch_size"] = static_cast<std::int64_t>((0.95 * there - total(1)) / row) + 1;
  const Json tight = json(full, {"--no_data", "--gpu", "RTX 3090"});
  hold(tight, full, "RTX 3090");
  EXPECT_THAT(estimate(full, {"--no_data", "--gpu", "RTX 3090"}).out, HasSubstr("\nlittle room           uses 9"));
}

// Settings that cost time to save memory that is available; each remark begins with its key.
TEST_F(EstimateOf, RemarksOnWhatIsPaidForAndNotNeeded) {
  const std::string model = wide_model();
  const auto remarks = [&](const Json& changes, const char* gpu = "H200") {
    Json c = config({{"model_name_or_path", model},
                     {"max_length", 512},
                     {"bf16", true},
                     {"use_peft", true},
                     {"lora_target_modules", "all-linear"},
                     {"per_device_train_batch_size", 16}});
    c.update(changes);
    std::string keys;
    const Json e = json(c, {"--no_data", "--gpu", gpu});
    for (const Json& remark : e.at("remarks")) {
      const auto text = remark.get<std::string>();
      keys += text.substr(0, text.find(' ')) + ";";
    }
    return keys;
  };
  EXPECT_EQ(remarks(Json::object()), "");
  EXPECT_EQ(remarks({{"gradient_checkpointing", true}}), "gradient_checkpointing;");
  EXPECT_EQ(remarks({{"gradient_checkpointing", "auto"}}), "");
  EXPECT_EQ(remarks({{"optim", "paged_adamw_8bit"}}), "optim=paged_adamw_8bit;");
  EXPECT_EQ(remarks({{"weight_offload", true}}), "weight_offload;");
  EXPECT_EQ(remarks({{"gradient_checkpointing", true}, {"per_device_train_batch_size", 64}}, "RTX 4090"), "")
      << "recomputation is needed here";
  EXPECT_THAT(estimate(config({{"gradient_accumulation_steps", 4}}), {"--no_data"}).out,
              HasSubstr("gradient_accumulation_steps=1 would be the same steps"));
}

TEST_F(EstimateOf, RefusesCardsWithoutKernels) {
  const Outcome outcome = estimate(config(Json::object()), {"--gpu", "P100"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("compute capability 6.0 (no tensor cores, no bfloat16)"));
  EXPECT_THAT(estimate(config(Json::object())).out, HasSubstr("no kernels for        V100 16GB,"));
}

// One row per GPU: the plan that `--gpu` has for it, with fp16 if it has no bfloat16.
TEST_F(EstimateOf, ShowsTheRunOnAllCards) {
  const Json c = config({{"bf16", true}, {"max_length", 200}, {"operand_copies", false}});
  const Json all = json(c, {"--no_data", "--cards"});
  int held = 0;
  for (const Json& card : all.at("cards")) {
    const auto name = card.at("name").get<std::string>();
    EXPECT_EQ(card.at("fits").get<bool>() && card.at("runs").get<bool>(), all.at("gpus").at(name).get<bool>()) << name;
    if (name != "RTX 4090" && name != "T4") continue;
    Json own = c;
    own.update(card.at("changes"));
    const Json e = json(own, {"--no_data", "--gpu", name});
    const auto total = e.at("memory").at("total").get<double>();
    EXPECT_NEAR(card.at("total").get<double>(), total, name == "T4" ? 0.005 * total : 0)
        << "float16 takes a little more";
    EXPECT_EQ(e.at("device_memory"), card.at("memory")) << name;
    EXPECT_NEAR(e.at("tokens_per_second").get<double>() / card.at("tokens_per_second").get<double>(), 1, 0.01) << name;
    EXPECT_EQ(e.at("limit"), card.at("limit")) << name;
    ++held;
  }
  EXPECT_EQ(held, 2);
  const std::string text = estimate(c, {"--no_data", "--cards"}).out;
  EXPECT_THAT(text, HasSubstr("predicted, not measured"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 80u) << line;
}

}  // namespace
}  // namespace qtrain::e2e
