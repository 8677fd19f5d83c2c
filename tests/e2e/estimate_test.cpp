// What `qtrain estimate` says is what a run uses.
#include "core/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

TEST(Estimate, IsWhatARunUsesOnTheProcessor) {
  expect_estimates_to_hold("cpu");
}

class EstimateOf : public ::testing::Test {
 protected:
  Json config(const Json& changes) const {
    Json c = tiny_run(folder_ / "out");
    c.update(changes);
    return c;
  }
  Outcome estimate(const Json& c, const std::vector<std::string>& more = {}) const {
    write_file(folder_ / "run.json", dump_json(c));
    std::vector<std::string> words{"estimate", (folder_ / "run.json").string()};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain({.words = words, .folder = kGoldens});
  }
  Json json(const Json& c, std::vector<std::string> more = {}) const {
    more.emplace_back("--json");
    const Outcome outcome = estimate(c, more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return parse_json(outcome.out, "estimate");
  }

  TempFolder folder_;
};

TEST_F(EstimateOf, TellsStepsTokensTimeAndCost) {
  const Json e = json(config({{"max_steps", 7}}), {"--gpu", "H100", "--price_per_hour", "3600"});
  EXPECT_EQ(e.at("device"), "H100 80GB");
  EXPECT_EQ(e.at("steps"), 7);
  EXPECT_EQ(e.at("fits"), true);
  EXPECT_GT(e.at("tokens").get<double>(), 7);
  EXPECT_GT(e.at("seconds").get<double>(), 0);
  EXPECT_NEAR(e.at("cost").get<double>(), e.at("seconds").get<double>(), 1e-9);
  const double half = json(config({{"max_steps", 7}}), {"--gpu", "H100", "--mfu", "0.2"}).at("seconds");
  EXPECT_NEAR(half, 2 * e.at("seconds").get<double>(), 1e-9);
}

TEST_F(EstimateOf, GoesByMaxLengthWithoutData) {
  Json c = config({{"max_length", 16}, {"per_device_train_batch_size", 3}, {"max_steps", 5}});
  EXPECT_EQ(json(c, {"--no_data"}).at("largest_batch").at("tokens"), 48);
  c.erase("dataset_name");
  const Json e = json(c);
  EXPECT_EQ(e.at("largest_batch").at("tokens"), 48);
  EXPECT_EQ(e.at("steps"), 5);
  c.erase("max_steps");
  EXPECT_TRUE(json(c).at("steps").is_null());
}

TEST_F(EstimateOf, ReadsNoWeights) {
  const fs::path model = folder_ / "model";
  write_untrained_model(model);
  write_file(model / "model.safetensors", "nothing that could be read");
  const Json e = json(config({{"model_name_or_path", model.string()}, {"max_length", 64}}), {"--no_data"});
  EXPECT_GT(e.at("memory").at("weights").get<std::int64_t>(), 400 * 48 * 4);
}

TEST_F(EstimateOf, EndsWith4WhereTheRunDoesNotFit) {
  const Json c = config({{"max_length", 200}, {"per_device_train_batch_size", 1 << 20}});
  const Outcome outcome = estimate(c, {"--no_data", "--gpu", "T4", "--json"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(parse_json(outcome.out, "estimate").at("fits"), false);
  EXPECT_THAT(outcome.err, HasSubstr("per_device_train_batch_size="));
}

TEST_F(EstimateOf, RefusesBfloat16OnACardWithoutIt) {
  const Outcome outcome = estimate(config({{"bf16", true}}), {"--gpu", "T4"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("fp16=true"));
}

TEST_F(EstimateOf, RefusesMuonOnACardWithoutBfloat16) {
  const Json c = config({{"bf16", false}, {"optim", "muon"}, {"use_peft", false}});
  const Outcome outcome = estimate(c, {"--no_data", "--gpu", "T4"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("optim muon multiplies in bfloat16"));
  EXPECT_EQ(estimate(c, {"--no_data", "--gpu", "A10"}).code, 0);
}

TEST_F(EstimateOf, ExplainsCopiesAndNamesTheCardsThatFit) {
  const Json c = config({{"bf16", true}, {"max_length", 200}, {"per_device_train_batch_size", 8000}});
  const Json with = json(c, {"--no_data", "--gpu", "H200"});
  EXPECT_EQ(with.at("optional_copies").at("keys"), Json::array({"operand_copies"}));
  const auto total = with.at("memory").at("total").get<std::int64_t>(),
             least = total - with.at("optional_copies").at("bytes").get<std::int64_t>();
  Json plain = c;
  plain["operand_copies"] = false;
  const Json without = json(plain, {"--no_data", "--gpu", "H200"});
  EXPECT_EQ(without.at("memory").at("total"), least);
  EXPECT_EQ(without.at("optional_copies").at("bytes"), 0);
  for (const auto& [gpu, fits] : with.at("gpus").items())
    EXPECT_EQ(fits.get<bool>(), estimate(plain, {"--no_data", "--gpu", gpu}).code == 0) << gpu;
  const std::string text = estimate(c, {"--no_data", "--gpu", "H200"}).out;
  EXPECT_THAT(text, HasSubstr("operand_copies=false leaves them out"));
  EXPECT_THAT(text, HasSubstr("\nfits "));
  EXPECT_THAT(text, HasSubstr("\ndoes not fit "));
  EXPECT_EQ(text.find(" 0.00 MiB"), std::string::npos) << text;
}

// People without a GPU ask which one they need.
TEST_F(EstimateOf, OfARunOnTheProcessorNamesTheCardsToo) {
  for (const Json& change : {Json::object(), Json{{"bf16", true}}, Json{{"gradient_checkpointing", "auto"}},
                             Json{{"optim", "paged_adamw_8bit"}, {"bf16", true}}}) {
    Json c = config({{"device", "cpu"}, {"max_length", 200}, {"per_device_train_batch_size", 40'000}});
    c.update(change);
    const Json gpus = json(c, {"--no_data"}).at("gpus");
    EXPECT_GT(gpus.size(), 20u);
    c.erase("device");
    int can = 0;
    for (const auto& [gpu, fits] : gpus.items()) {
      EXPECT_EQ(fits.get<bool>(), estimate(c, {"--no_data", "--gpu", gpu}).code == 0) << gpu << change;
      can += fits.get<bool>() ? 1 : 0;
    }
    EXPECT_GT(can, 0) << change;
    EXPECT_LT(can, static_cast<int>(gpus.size())) << change;
  }
  const std::string text = estimate(config({{"device", "cpu"}}), {"--no_data"}).out;
  EXPECT_THAT(text, ::testing::AllOf(HasSubstr("\nfits on "), HasSubstr(" H200"), HasSubstr("\ndoes not fit on ")));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 80u) << line;
}

TEST_F(EstimateOf, NamesTheCardsItKnows) {
  const Outcome outcome = estimate(config(Json::object()), {"--gpu", "abacus"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("RTX 4090"));
}

}  // namespace
}  // namespace qtrain::e2e
