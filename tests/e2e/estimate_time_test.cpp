// What `qtrain estimate` predicts of time, and what it says where memory is short or is not.
#include "tests/e2e/estimates.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

// Time by a card's limits: what passes need at most, and the update of the weights behind them.
TEST_F(EstimateOf, TellsWhatTheTimeHangsOn) {
  const std::string model = wide_model();
  const auto limit = [&](const Json& change, const char* gpu) {
    Json c = config({{"model_name_or_path", model}, {"max_length", 200}, {"bf16", true}, {"max_steps", 1}});
    c.update(change);
    const Json e = json(c, {"--no_data", "--gpu", gpu});
    const Json& u = e.at("update");
    double longest = 0;
    for (const char* part : {"computing", "memory_traffic", "host_traffic", "loading"})
      longest = std::max(longest, u.at(part).get<double>());
    EXPECT_NEAR(u.at("seconds").get<double>(), longest + u.at("update_of_weights").get<double>(), 1e-9);
    EXPECT_NEAR(e.at("seconds").get<double>(), u.at("seconds").get<double>(), 1e-9);
    return e.at("limit").get<std::string>();
  };
  EXPECT_EQ(limit({{"per_device_train_batch_size", 32}}, "H100"), "compute");
  EXPECT_EQ(limit({{"max_length", 8}, {"per_device_train_batch_size", 1}, {"use_peft", true}}, "H100"),
            "memory bandwidth");
  EXPECT_EQ(limit({{"max_length", 8}, {"gradient_accumulation_steps", 1}}, "H100"), "the update of the weights");
  EXPECT_EQ(limit({{"max_length", 8}, {"gradient_accumulation_steps", 64}, {"weight_offload", true}}, "H100"),
            "the link to the host");
}

// Each way to fit is a run that the same command plans with these bytes.
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
    EXPECT_TRUE(same) << "one of them changes no result";
  };
  const Outcome large = estimate(c, {"--no_data", "--gpu", "RTX 3080", "--json"});
  EXPECT_EQ(large.code, 4);
  const Json e = parse_json(large.out, "estimate");
  EXPECT_EQ(e.at("limit"), "memory size");
  hold(e, c, "RTX 3080");
  // Nearly full: as many rows as take 95 % of the card.
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
  EXPECT_THAT(estimate(full, {"--no_data", "--gpu", "RTX 3090"}).out, HasSubstr("\nlittle room           9"));
}

// What costs time to save memory that there is; each remark begins with its key.
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
  EXPECT_EQ(remarks({{"optim", "paged_adamw_8bit"}}), "optim;");
  EXPECT_EQ(remarks({{"weight_offload", true}}), "weight_offload;");
  EXPECT_EQ(remarks({{"gradient_checkpointing", true}, {"per_device_train_batch_size", 64}}, "RTX 4090"), "")
      << "where it is needed";
  EXPECT_THAT(estimate(config({{"gradient_accumulation_steps", 4}}), {"--no_data"}).out,
              HasSubstr("gradient_accumulation_steps=1 would be the same steps"));
}

TEST_F(EstimateOf, RefusesCardsWithoutKernels) {
  const Outcome outcome = estimate(config(Json::object()), {"--gpu", "P100"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("compute capability 6.0 (no tensor cores, no bfloat16)"));
  EXPECT_THAT(estimate(config(Json::object())).out, HasSubstr("no kernels for        V100 16GB,"));
}

// One row for each card: the plan that `--gpu` has there, and with fp16 where a card has no bfloat16.
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
    EXPECT_NEAR(card.at("total").get<double>(), total, name == "T4" ? 0.005 * total : 0) << "in float16 a little more";
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
