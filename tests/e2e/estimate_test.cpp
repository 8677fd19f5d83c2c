// `qtrain estimate` agrees with what a run uses.
#include <algorithm>

#include "tests/e2e/estimates.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

TEST(Estimate, IsWhatARunUsesOnTheProcessor) {
  expect_estimates_to_hold("cpu");
}

TEST_F(EstimateOf, TellsStepsTokensTimeAndCost) {
  const Json e = json(config({{"max_steps", 7}}), {"--gpu", "H100", "--price_per_hour", "3600"});
  EXPECT_EQ(e.at("device"), "H100 80GB");
  EXPECT_EQ(e.at("steps"), 7);
  EXPECT_EQ(e.at("fits"), true);
  EXPECT_GT(e.at("tokens").get<double>(), 7);
  EXPECT_GT(e.at("seconds").get<double>(), 0);
  EXPECT_NEAR(e.at("cost").get<double>(), e.at("seconds").get<double>(), 1e-9);
  const auto computing = [&](const char* mfu) {
    const Json of = json(config({{"max_steps", 7}}), {"--gpu", "H100", "--mfu", mfu}).at("update");
    return of.at("computing").get<double>();
  };
  EXPECT_NEAR(computing("0.2"), 2 * computing("0.4"), 1e-9);
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

TEST_F(EstimateOf, SaysWhereTheEvaluationIsThePeak) {
  const Json large{{"eval_dataset_name", (kGoldens / "curves/cosine/data.jsonl").string()},
                   {"eval_strategy", "steps"},
                   {"per_device_train_batch_size", 1},
                   {"per_device_eval_batch_size", 20}};
  Json small = large;
  small.update({{"per_device_train_batch_size", 20}, {"per_device_eval_batch_size", 1}});
  const auto remarks = [&](const Json& changes) { return json(config(changes), {}).at("remarks").dump(); };
  EXPECT_THAT(remarks(large), HasSubstr("evaluation needs the most memory"));
  EXPECT_THAT(remarks(large), HasSubstr("per_device_eval_batch_size"));
  EXPECT_THAT(remarks(small), ::testing::Not(HasSubstr("evaluation needs the most memory")));
}

TEST_F(EstimateOf, SaysWhatDecompositionsOfWeightsTake) {
  const fs::path model = folder_ / "model";
  write_untrained_model(model);
  write_file(model / "model.safetensors", "nothing that could be read");
  Json sizes = read_json(model / "config.json");
  sizes.update(
      {{"hidden_size", 4096}, {"intermediate_size", 8192}, {"num_hidden_layers", 8}, {"num_attention_heads", 32}});
  write_file(model / "config.json", dump_json(sizes));
  const auto remarks = [&](const Json& init) {
    return json(config({{"model_name_or_path", model.string()},
                        {"max_length", 64},
                        {"use_peft", true},
                        {"lora_target_modules", "all-linear"},
                        {"init_lora_weights", init}}),
                {"--no_data", "--gpu", "H100"})
        .at("remarks")
        .dump();
  };
  EXPECT_THAT(remarks("pissa"), HasSubstr("decomposes 56 weights on the processor"));
  for (const Json& init : {Json(true), Json("gaussian"), Json("olora")})
    EXPECT_THAT(remarks(init), ::testing::Not(HasSubstr("decomposes"))) << init;
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

// This key exists to reduce the activations on each rank.
TEST_F(EstimateOf, NamesTheSharingOfTokensWhereRanksAreMany) {
  Json c = config({{"max_length", 200}, {"per_device_train_batch_size", 1 << 20}, {"device", "cpu"}, {"nproc", 4}});
  const auto said = [&] { return estimate(c, {"--no_data"}).err; };
  EXPECT_THAT(said(), HasSubstr("context_parallel_size=2 with gradient_accumulation_steps=4 saves"));
  for (const Json& change : {Json{{"nproc", 3}}, Json{{"context_parallel_size", 2}}}) {
    Json other = c;
    other.update(change);
    std::swap(c, other);
    EXPECT_THAT(said(), ::testing::Not(HasSubstr("context_parallel_size=2 with"))) << change;
    std::swap(c, other);
  }
}

TEST_F(EstimateOf, RefusesBfloat16OnACardWithoutIt) {
  const Outcome outcome = estimate(config({{"bf16", true}}), {"--gpu", "T4"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("fp16=true"));
}

TEST_F(EstimateOf, RefusesFp8OnACardWithoutIt) {
  const Json c = config({{"fp8", true}, {"bf16", true}});
  const Outcome outcome = estimate(c, {"--no_data", "--gpu", "A100"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("set fp8=false"));
  for (const char* gpu : {"RTX 4090", "H100", "RTX 5090"}) EXPECT_EQ(estimate(c, {"--no_data", "--gpu", gpu}).code, 0);
  const Json without = config({{"fp8", true}, {"bf16", false}});
  EXPECT_EQ(estimate(without, {"--no_data", "--gpu", "A100"}).code, 0) << "no GEMM has 16 bits";
  const Json blocks = config({{"fp8", true}, {"fp8_recipe", "blockwise"}, {"bf16", true}});
  const Outcome other = estimate(blocks, {"--no_data", "--gpu", "RTX 5090"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("compute capability 9.0"));
  EXPECT_EQ(estimate(blocks, {"--no_data", "--gpu", "H100"}).code, 0);
}

// FP8 has scales for blocks on some cards only.
TEST_F(EstimateOf, ComparesEachCardWithItsOwnRecipeOfFp8) {
  const Json c = config({{"model_name_or_path", wide_model()},
                         {"max_length", 512},
                         {"bf16", true},
                         {"fp8", true},
                         {"fp8_forward", true},
                         {"operand_copies", false}});
  for (const std::string gpu : {"H100 80GB", "RTX 5090", "RTX 4090"}) {
    const Json e = json(c, {"--no_data", "--gpu", gpu});
    const auto& cards = e.at("cards");
    const auto card = std::ranges::find_if(cards, [&](const Json& row) { return row.at("name") == gpu; });
    ASSERT_NE(card, cards.end()) << gpu;
    EXPECT_EQ(card->at("tokens_per_second"), e.at("tokens_per_second")) << gpu;
    EXPECT_EQ(card->at("total"), e.at("memory").at("total")) << gpu;
  }
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
  int card = 0;
  for (const auto& [gpu, fits] : with.at("gpus").items())
    if (card++ % 3 == 0) {
      EXPECT_EQ(fits.get<bool>(), estimate(plain, {"--no_data", "--gpu", gpu}).code == 0) << gpu;
    }
  const std::string text = estimate(c, {"--no_data", "--gpu", "H200"}).out;
  EXPECT_THAT(text, HasSubstr("operand_copies=false turns them off"));
  EXPECT_THAT(text, HasSubstr("\nfits "));
  EXPECT_THAT(text, HasSubstr("\ndoes not fit "));
  EXPECT_EQ(text.find(" 0.00 MiB"), std::string::npos) << text;
}

// People without a GPU ask which one they need.
TEST_F(EstimateOf, OfARunOnTheProcessorNamesTheCardsToo) {
  int first = 0;
  for (const Json& change : {Json::object(), Json{{"bf16", true}}, Json{{"gradient_checkpointing", "auto"}},
                             Json{{"optim", "paged_adamw_8bit"}, {"bf16", true}}}) {
    Json c = config({{"device", "cpu"}, {"max_length", 200}, {"per_device_train_batch_size", 30'000}});
    c.update(change);
    const Json gpus = json(c, {"--no_data"}).at("gpus");
    EXPECT_GT(gpus.size(), 20u);
    c.erase("device");
    int can = 0, card = first++;  // each config is checked on some of the GPUs
    for (const auto& [gpu, fits] : gpus.items()) {
      if (card++ % 4 == 0) {
        EXPECT_EQ(fits.get<bool>(), estimate(c, {"--no_data", "--gpu", gpu}).code == 0) << gpu << change;
      }
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

// For every zero_stage, the plan is what a run with that stage needs.
TEST_F(EstimateOf, SeveralRanksHaveThePlanOfEachStage) {
  const Json c = config({{"max_length", 64}, {"nproc", 3}, {"deterministic_reduce", true}, {"device", "cpu"}});
  const Json stages = json(c, {"--no_data"}).at("of_ranks").at("stages");
  ASSERT_EQ(stages.size(), 4u);
  for (int stage = 0; stage < 4; ++stage) {
    Json own = c;
    own["zero_stage"] = stage;
    EXPECT_EQ(stages[stage].at("memory"), json(own, {"--no_data"}).at("memory")) << stage;
    EXPECT_TRUE(stages[stage].at("update").is_null()) << "the speed of links between processors is unknown";
  }
  EXPECT_LT(stages[1].at("memory").at("optimizer"), stages[0].at("memory").at("optimizer"));
  EXPECT_THAT(estimate(c, {"--no_data"}).out, HasSubstr("memory per rank and stage: 3 ranks (1 node of 3)"));
  EXPECT_TRUE(json(config(Json::object()), {"--no_data"}).at("of_ranks").is_null());
}

// Ranks that share tokens process an update's tokens together.
TEST_F(EstimateOf, TokensOfAnUpdateAreCountedOnce) {
  const Json e =
      json(config({{"max_length", 64}, {"nproc", 4}, {"context_parallel_size", 2}, {"device", "cpu"}}), {"--no_data"});
  const double steps = e.at("steps").get<double>();
  EXPECT_EQ(e.at("of_ranks").at("tokens_per_update").get<double>() * steps, e.at("tokens").get<double>());
}

TEST_F(EstimateOf, ForecastsRunsOnManyNodes) {
  const Json c = config({{"max_length", 128}, {"bf16", true}, {"max_steps", 10}, {"operand_copies", false}});
  const Json e = json(c, {"--no_data", "--gpu", "H100", "--nodes", "4", "--gpus_per_node", "2"});
  const Json& ranks = e.at("of_ranks");
  EXPECT_EQ(e.at("ranks"), 8);
  EXPECT_EQ(ranks.at("tokens_per_update"), 8 * 2 * 2 * 128);
  const Json* fastest = nullptr;
  for (const Json& s : ranks.at("stages")) {
    const Json& update = s.at("update");
    EXPECT_NEAR(update.at("seconds").get<double>(),
                update.at("computing").get<double>() + update.at("waiting").get<double>(), 1e-9);
    EXPECT_NEAR(s.at("tokens_per_second").get<double>() * update.at("seconds").get<double>(), 4096, 1e-6);
    EXPECT_NEAR(
        s.at("tokens_per_second_range").at("low").get<double>() * update.at("seconds_range").at("high").get<double>(),
        4096, 1e-6);
    EXPECT_LT(update.at("seconds_range").at("low"), update.at("seconds")) << "compute is slower than exchanges here";
    if (!fastest || update.at("seconds") <= fastest->at("update").at("seconds")) fastest = &s;
  }
  EXPECT_EQ(ranks.at("fastest"), fastest->at("zero_stage"));
  EXPECT_NEAR(e.at("seconds").get<double>(), 10 * ranks.at("stages")[0].at("update").at("seconds").get<double>(), 1e-9);
  std::istringstream lines(estimate(c, {"--no_data", "--gpu", "H100", "--nodes", "1024"}).out);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LT(line.size(), 80u) << line;
    if (line.starts_with("fastest that fits")) last = line;
  }
  EXPECT_THAT(last, HasSubstr("zero_stage="));
}

// The time that they wait for each other's keys, in addition to adding gradients.
TEST_F(EstimateOf, RanksThatShareTokensWaitForKeys) {
  const auto delay = [&](int sharing) {
    const Json c = config({{"max_length", 128}, {"context_parallel_size", sharing}});
    const auto seconds = [&](const char* gbps) {
      const Json e =
          json(c, {"--no_data", "--gpu", "H100", "--nodes", "4", "--gpus_per_node", "1", "--network_gbps", gbps});
      return e.at("of_ranks").at("stages")[0].at("update").at("seconds").get<double>();
    };
    return seconds("0.01") - seconds("400");
  };
  EXPECT_GT(delay(4), 1.1 * delay(1));
}

TEST_F(EstimateOf, SlowerNetworksTakeLonger) {
  const Json c = config({{"max_length", 128}, {"zero_stage", 3}});
  const auto seconds = [&](std::vector<std::string> more) {
    for (const char* word : {"--no_data", "--gpu", "H100", "--nodes", "4"}) more.emplace_back(word);
    return json(c, more).at("of_ranks").at("stages")[3].at("update").at("seconds").get<double>();
  };
  const double usual = seconds({});
  EXPECT_EQ(seconds({"--network_gbps", "400"}), usual);
  EXPECT_GT(seconds({"--network_gbps", "0.1"}), usual);
  EXPECT_NE(seconds({"--collectives", "tree"}), seconds({"--collectives", "ring"}));
}

// Two micro-batches exchange gradients once, or twice with stage 2; stages 1 and 2 also exchange float32 weights.
TEST_F(EstimateOf, GradientsInBfloat16AreHalfTheBytes) {
  const auto exchanging = [&](const char* type, int stage) {
    const Json c = config({{"max_length", 128}, {"communication_data_type", type}});
    const Json e = json(c, {"--no_data", "--gpu", "H100", "--nodes", "4", "--gpus_per_node", "1", "--network_gbps",
                            "0.001", "--collectives", "ring"});
    return e.at("of_ranks").at("stages")[stage].at("update").at("exchanging").get<double>();
  };
  for (const auto& [stage, share] : {std::pair(0, 1.0 / 2), {1, 3.0 / 4}, {2, 2.0 / 3}})
    EXPECT_NEAR(exchanging("bf16", stage) / exchanging("fp32", stage), share, 0.01) << stage;
}

// Exchanges that take turns with computation on one stream are not hidden.
TEST_F(EstimateOf, ExchangesTakeTurnsOrRunBeside) {
  const Json c = config({{"max_length", 128}, {"zero_stage", 3}, {"bf16", true}});
  const auto ranks = [&](std::vector<std::string> more) {
    for (const char* word : {"--no_data", "--gpu", "H100", "--nodes", "2"}) more.emplace_back(word);
    return json(c, more).at("of_ranks");
  };
  const auto update = [&](const std::vector<std::string>& more) { return ranks(more).at("stages")[3].at("update"); };
  const auto of = [](const Json& u, const char* part) { return u.at(part).get<double>(); };
  const Json one = update({"--overlap", "no"}), two = update({"--overlap", "yes"});
  EXPECT_NEAR(of(one, "seconds"), of(one, "computing") + of(one, "exchanging"), 1e-9);
  EXPECT_NEAR(of(one, "exchanging"), of(two, "exchanging"), 1e-9);
  EXPECT_LT(of(two, "seconds"), of(one, "seconds"));
  EXPECT_EQ(ranks({}).at("overlap"), true);
  EXPECT_EQ(update({}), two);
  EXPECT_EQ(ranks({"overlap_comm=false"}).at("overlap"), false);
}

// A config for several machines without a GPU: the estimate has the memory of the requested ranks.
TEST_F(EstimateOf, NodesNeedNoCard) {
  const Json c = config({{"max_length", 64}});
  for (const char* device : {"auto", "cpu"}) {
    Json here = c;
    here["device"] = device;
    const Json ranks = json(here, {"--no_data", "--nodes", "4", "--gpus_per_node", "6"}).at("of_ranks");
    EXPECT_EQ(ranks.at("nodes"), 4) << device;
    EXPECT_EQ(ranks.at("ranks_per_node"), 6) << device;
    EXPECT_EQ(json(here, {"--no_data", "--nodes", "1"}).at("ranks"), 8) << device;
  }
}

// What every GPU refuses is neither offered nor called the fastest.
TEST_F(EstimateOf, SaysWhatGpusRefuse) {
  const Json c = config({{"max_length", 64}, {"zero_group_size", 1}, {"optim", "muon"}, {"device", "cpu"}});
  const std::vector<std::string> on_gpus{"--no_data", "--gpu", "H100", "--nodes", "2"};
  const Json ranks = json(c, on_gpus).at("of_ranks");
  EXPECT_TRUE(ranks.at("stages")[0].at("refused").is_null());
  for (const int stage : {1, 2, 3})
    EXPECT_THAT(ranks.at("stages")[stage].at("refused").get<std::string>(), HasSubstr("matrices of muon by itself"));
  EXPECT_EQ(ranks.at("fastest"), 0);
  EXPECT_THAT(estimate(c, on_gpus).out, HasSubstr("  refused: each GPU would update"));
  Json divided = c;
  divided.update({{"zero_stage", 1}, {"nproc", 2}});
  EXPECT_EQ(json(divided, {"--no_data"}).at("gpus"), Json::object());
  EXPECT_THAT(estimate(divided, {"--no_data"}).out, HasSubstr("on GPUs               refused: each GPU would"));
  EXPECT_EQ(estimate(divided, on_gpus).code, 2);
}

// The message for a user who requests a stage that is too large.
TEST_F(EstimateOf, NamesAStageThatFits) {
  const Json c =
      config({{"max_length", 200}, {"per_device_train_batch_size", 1}, {"model_name_or_path", wide_model()}});
  const Outcome outcome = estimate(c, {"--no_data", "--gpu", "RTX 3080", "--nodes", "1"});
  EXPECT_EQ(outcome.code, 4);
  EXPECT_THAT(outcome.err, HasSubstr("zero_stage=1 fits"));
  EXPECT_THAT(outcome.out, HasSubstr("fastest that fits     zero_stage="));
}

TEST_F(EstimateOf, RefusesWhatContradictsItself) {
  const auto error = [&](const Json& change, std::vector<std::string> more) {
    more.emplace_back("--no_data");
    const Outcome outcome = estimate(config(change), more);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(error(Json::object(), {"--gpus_per_node", "4"}), HasSubstr("give --nodes too"));
  EXPECT_THAT(error(Json::object(), {"--nodes", "0"}), HasSubstr("--nodes is 0"));
  EXPECT_THAT(error(Json::object(), {"--nodes", "2", "--gpus_per_node", "0"}), HasSubstr("--gpus_per_node is 0"));
  EXPECT_THAT(error({{"nnodes", 3}}, {"--nodes", "2"}), HasSubstr("--nodes is 2, but nnodes is 3"));
  EXPECT_THAT(error({{"nproc", 3}}, {"--nodes", "2", "--gpus_per_node", "4"}), HasSubstr("nproc is 3"));
  EXPECT_THAT(error(Json::object(), {"--network_gbps", "100"}), HasSubstr("more than one node"));
  EXPECT_THAT(error(Json::object(), {"--nodes", "2", "--network_gbps", "-1"}), HasSubstr("--network_gbps is -1"));
  EXPECT_THAT(error(Json::object(), {"--nodes", "2", "--network_gbps", "1e-320"}),
              HasSubstr("give a number of at least"));
  EXPECT_THAT(error(Json::object(), {"--nodes", "65536", "--gpus_per_node", "4096"}), HasSubstr("use at most 1048576"));
  for (const char* flag : {"--collectives", "--overlap"})
    EXPECT_THAT(error(Json::object(), {flag, flag[2] == 'c' ? "ring" : "no"}), HasSubstr("needs more than one rank"));
  EXPECT_THAT(error({{"nproc", 2}}, {"--trace", "out", "--gpu", "H100"}), HasSubstr("give only one of them"));
}

// Compares the timelines of a run with its simulated schedule: computing and waiting times.
TEST_F(EstimateOf, HoldsTheScheduleAgainstARun) {
  Json c = config({{"device", "cpu"}, {"nproc", 2}, {"zero_stage", 3}, {"profile", true}, {"max_steps", 6}});
  train_ok(folder_.path(), c);
  const std::string out = (folder_ / "out").string();
  const Json timeline = json(c, {"--trace", out}).at("timeline");
  EXPECT_EQ(timeline.at("ranks"), 2);
  EXPECT_GE(timeline.at("updates"), 2)
      << "the first update is left out, and so are the last ones of epochs, which are shorter";
  EXPECT_GT(timeline.at("measured").get<double>(), 0);
  EXPECT_NEAR(timeline.at("predicted").get<double>(), timeline.at("measured").get<double>(),
              timeline.at("measured").get<double>())
      << "of the same order of magnitude, however busy the machine is";
  EXPECT_GT(timeline.at("norm").get<double>(), 0) << "sums of the loss and of squares";
  EXPECT_GT(timeline.at("computing").get<double>(), 0);
  EXPECT_THAT(estimate(c, {"--trace", out}).out, HasSubstr(" updates of 2 ranks, median"));
  c["nproc"] = 3;
  EXPECT_THAT(estimate(c, {"--trace", out}).err, HasSubstr("the timelines have 2 ranks, but the config has 3"));
  c["nproc"] = 2;
  c["zero_stage"] = 1;
  EXPECT_THAT(estimate(c, {"--trace", out}).err, HasSubstr("not from a run of this config"));
}

TEST_F(EstimateOf, HoldsTheScheduleOfWholeGradientsAgainstARun) {
  for (const bool beside : {true, false}) {
    const Json c =
        config({{"device", "cpu"}, {"nproc", 2}, {"profile", true}, {"max_steps", 6}, {"overlap_comm", beside}});
    train_ok(folder_.path(), c);
    const Json timeline = json(c, {"--trace", (folder_ / "out").string()}).at("timeline");
    EXPECT_NEAR(timeline.at("predicted").get<double>(), timeline.at("measured").get<double>(),
                timeline.at("measured").get<double>());
    EXPECT_GT(timeline.at("waiting").get<double>(), 0);
  }
}

TEST_F(EstimateOf, NamesTheCardsItKnows) {
  const Outcome outcome = estimate(config(Json::object()), {"--gpu", "abacus"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("RTX 4090"));
}

}  // namespace
}  // namespace qtrain::e2e
