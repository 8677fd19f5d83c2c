#include <unistd.h>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Validate : public ::testing::Test {
 protected:
  void write(const Json& config) { write_file(folder_ / "run.json", dump_json(config, 2)); }
  Outcome validate(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"validate", (folder_ / "run.json").string(), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = qtrain({.words = words});
    report_ = parse_json(outcome.out, "stdout");
    EXPECT_FALSE(fs::exists(folder_ / "out"));
    return outcome;
  }
  /// "kind where cause" of each problem.
  std::vector<std::string> problems() const {
    std::vector<std::string> texts;
    for (const Json& p : report_.at("problems"))
      texts.push_back(p.at("kind").get<std::string>() + " " + p.at("where").get<std::string>() + " " +
                      p.at("cause").get<std::string>());
    return texts;
  }
  Json rows(const std::string& lines) {
    write_file(folder_ / "rows.jsonl", lines);
    Json config = tiny_run(folder_ / "out");
    config["dataset_name"] = (folder_ / "rows.jsonl").string();
    return config;
  }
  TempFolder folder_;
  Json report_;
};

TEST_F(Validate, AGoodRunIsValid) {
  write(tiny_lora_run(folder_ / "out"));
  EXPECT_EQ(validate().code, 0);
  EXPECT_EQ(report_.at("valid"), true);
  EXPECT_THAT(report_.at("problems"), IsEmpty());
  EXPECT_THAT(report_.at("checked").at("training rows").get<std::string>(), HasSubstr("21 rows, "));
  EXPECT_THAT(report_.at("checked").at("memory and disk").get<std::string>(), HasSubstr("8 updates"));
  const Outcome text = qtrain({.words = {"validate", (folder_ / "run.json").string()}});
  EXPECT_EQ(text.code, 0);
  EXPECT_TRUE(text.out.ends_with("\nvalid\n")) << text.out;
}

TEST_F(Validate, TriesTheOutputFolder) {
  Json config = tiny_lora_run(folder_ / "taken" / "out");
  write(config);
  EXPECT_EQ(validate().code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "taken")) << "no file is left behind";
  write_file(folder_ / "taken", "a file");
  EXPECT_EQ(validate().code, 6);
  EXPECT_THAT(problems(), ::testing::ElementsAre(HasSubstr("taken is a file")));
  config["output_dir"] = "/proc/qtrain/out";  // nobody, not even root, can create folders there
  write(config);
  EXPECT_EQ(validate().code, 6);
  EXPECT_THAT(problems(),
              ::testing::ElementsAre(HasSubstr("disk /proc/qtrain/out cannot write to the output directory")));
}

TEST_F(Validate, AnOutputFolderWithoutPermissionIsTold) {
  fs::create_directories(folder_ / "locked");
  fs::permissions(folder_ / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  write(tiny_lora_run(folder_ / "locked/out"));
  Launch launch = launch_of({.words = {"validate", (folder_ / "run.json").string(), "--json"}});
  if (::geteuid() == 0) {  // root ignores permissions unless it drops that privilege
    const std::string setpriv = "/usr/bin/setpriv";
    if (!fs::exists(setpriv)) GTEST_SKIP() << "runs as root, and setpriv is not installed";
    launch.argv.insert(launch.argv.begin(), {setpriv, "--bounding-set", "-dac_override"});
  }
  const Outcome outcome = Process(launch).wait();
  if (outcome.err.starts_with("setpriv")) GTEST_SKIP() << "runs as root, and " << outcome.err;
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  report_ = parse_json(outcome.out, "stdout");
  EXPECT_THAT(problems(), ::testing::ElementsAre(HasSubstr("Permission denied")));
}

TEST_F(Validate, TellsRowsAndWhatPackingMakesOfThem) {
  std::string lines;
  for (int i = 0; i < 3; ++i)
    lines += R"({"input_ids": [5, 6, 7, 8, 9, 5, 6, 7, 8]})"
             "\n";
  Json config = rows(lines);
  config.update({{"packing", true}, {"packing_strategy", "bfd_split"}, {"max_length", 4}, {"max_steps", 1}});
  write(config);
  EXPECT_EQ(validate().code, 0);
  EXPECT_THAT(report_.at("checked").at("training rows").get<std::string>(),
              ::testing::StartsWith("3 rows, 7 after filters and packing, 27 tokens"));
}

TEST_F(Validate, WarnsOfTruncatedRowsOfBothSplits) {
  std::string lines;
  for (int i = 0; i < 3; ++i)
    lines += R"({"input_ids": [5, 6, 7, 8, 9, 5, 6, 7, 8]})"
             "\n";
  Json config = rows(lines);
  const std::string file = config.at("dataset_name");
  config.update({{"eval_dataset_name", file}, {"max_length", 4}, {"max_steps", 1}});
  write(config);
  EXPECT_EQ(validate().code, 0);
  std::vector<std::string> truncated;
  for (const Json& warning : report_.at("warnings"))
    if (const std::string text = warning; text.find(" truncates ") != std::string::npos) truncated.push_back(text);
  EXPECT_THAT(truncated, ::testing::ElementsAre(
                             HasSubstr("max_length=4 truncates 3 of 3 rows (100 %), which loses 56 % of the tokens"),
                             HasSubstr(file + ":1 with 9 tokens")));
}

TEST_F(Validate, TakesYamlAndSaysWhatDoesNotMatch) {
  write(tiny_lora_run(folder_ / "out"));
  const Json config = read_json(folder_ / "run.json");
  std::string yaml = "max_length: 4096\n";
  for (const auto& [key, value] : config.items())
    if (key != "max_length") yaml += key + ": " + dump_json(value) + "\n";
  write_file(folder_ / "run.yaml", yaml);
  const Outcome outcome = qtrain({.words = {"validate", (folder_ / "run.yaml").string(), "--json"}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(parse_json(outcome.out, "stdout").at("warnings").dump(),
              HasSubstr("max_length 4096 is much longer than the rows"));
}

TEST_F(Validate, FindsTheTensorsOfABareModel) {
  const fs::path model = folder_ / "model";
  fs::create_directories(model);
  fs::copy(kGoldens / "llama_gqa3_tied/config.json", model);
  const SafetensorsReader whole(kGoldens / "llama_gqa3_tied");
  NamedTensors tensors;
  for (const auto& [name, tensor] : whole.tensors()) tensors.emplace_back(name.substr(sizeof "model." - 1), tensor);
  write_safetensors(model / "model.safetensors", tensors);
  Json config = tiny_lora_run(folder_ / "out");
  config["model_name_or_path"] = model.string();
  for (const bool quantized : {false, true}) {
    config["load_in_4bit"] = quantized;
    write(config);
    EXPECT_EQ(validate().code, 0) << report_;
  }
}

TEST_F(Validate, ListsAllProblemsAndNotTheFirst) {
  Json config = tiny_run(folder_ / "out");
  config.update({{"learning_rat", 1},
                 {"max_steps", "many"},
                 {"model_name_or_path", "/nowhere/model"},
                 {"dataset_name", "/nowhere/rows.jsonl"}});
  write(config);
  EXPECT_EQ(validate().code, 2);
  const auto all = problems();
  ASSERT_EQ(all.size(), 4u) << report_;
  EXPECT_THAT(all[0] + all[1], HasSubstr("learning_rat"));
  EXPECT_THAT(all[0] + all[1], HasSubstr("max_steps"));
  EXPECT_THAT(all[2], HasSubstr("input /nowhere/model"));
  EXPECT_THAT(all[3], HasSubstr("/nowhere/rows.jsonl"));
  EXPECT_THAT(report_.at("problems")[0].at("remedy").get<std::string>() +
                  report_.at("problems")[1].at("remedy").get<std::string>(),
              HasSubstr("learning_rate"));
}

TEST_F(Validate, LooksOnBesideRanksThatAreNoNumbers) {
  Json config = tiny_lora_run(folder_ / "out");
  config.update(
      {{"rank_pattern", {{"q_proj", "four"}}}, {"alpha_pattern", {{"v_proj", true}}}, {"report_to", "comet_ml"}});
  write(config);
  EXPECT_EQ(validate().code, 2);
  const std::string place = "config " + (folder_ / "run.json").string();
  EXPECT_THAT(problems(),
              ::testing::UnorderedElementsAre(AllOf(HasSubstr(place), HasSubstr("the rank of \"q_proj\" is \"four\"")),
                                              AllOf(HasSubstr(place), HasSubstr("the alpha of \"v_proj\" is true")),
                                              AllOf(HasSubstr(place), HasSubstr("report_to \"comet_ml\""))));
}

TEST_F(Validate, BoundsRanksAndAlphasOfPatterns) {
  const auto causes = [&](const char* key, const Json& value) {
    Json config = tiny_lora_run(folder_ / "out");
    config[key] = {{"q_proj", value}};
    write(config);
    validate();
    return problems();
  };
  for (const Json& value : {Json(-4), Json(0), Json(2.5), Json(65537), Json(1e30), Json(true), Json("4")})
    EXPECT_THAT(causes("rank_pattern", value), ::testing::ElementsAre(HasSubstr("the rank of \"q_proj\""))) << value;
  for (const Json& value : {Json(-1), Json(0), Json(true), Json("16")})
    EXPECT_THAT(causes("alpha_pattern", value), ::testing::ElementsAre(HasSubstr("the alpha of \"q_proj\""))) << value;
  EXPECT_THAT(causes("rank_pattern", 1), ::testing::IsEmpty());
  EXPECT_THAT(causes("alpha_pattern", 0.5), ::testing::IsEmpty());
}

TEST_F(Validate, MissingFilesAreInputErrors) {
  Json config = tiny_run(folder_ / "out");
  config["eval_dataset_name"] = "/nowhere/eval.jsonl";
  config["adapter_name_or_path"] = "/nowhere/adapter";
  write(config);
  EXPECT_EQ(validate().code, 3);
  EXPECT_EQ(problems().size(), 2u) << report_;
}

TEST_F(Validate, AConfigThatIsNoJsonHasOneProblem) {
  write_file(folder_ / "run.json", "{\"seed\": 1,}");
  EXPECT_EQ(validate().code, 2);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(problems()[0], HasSubstr("run.json:1"));
}

TEST_F(Validate, EveryBadRowIsNamed) {
  const std::string good = "{\"input_ids\": [5, 6, 7]}\n";
  write(rows(good + "{\"input_ids\": [5\n" + good + "{\"input_ids\": \"x\"}\n" + "{\"input_ids\": \"y\"}\n" + good));
  EXPECT_EQ(validate().code, 3);
  const auto all = problems();
  ASSERT_EQ(all.size(), 2u) << report_;
  EXPECT_THAT(all[0], HasSubstr("rows.jsonl:2"));
  EXPECT_THAT(all[1], HasSubstr("rows.jsonl:4"));
  EXPECT_THAT(all[1], HasSubstr("and 1 more row"));
}

TEST_F(Validate, OfManyBadRowsTheFirstAreNamedAndTheRestCounted) {
  std::string lines;
  for (int i = 0; i < 30; ++i) lines += "{\"input_ids\": [1, " + std::string(i + 1, 'x') + "]}\n";
  write(rows(lines));
  EXPECT_EQ(validate().code, 3);
  const auto all = problems();
  ASSERT_LE(all.size(), 21u);
  EXPECT_THAT(all[0], HasSubstr("rows.jsonl:1"));
  EXPECT_THAT(all.back(), HasSubstr("29 more rows"));
}

TEST_F(Validate, ChatRowsNeedATemplate) {
  write_untrained_model(folder_ / "model");
  Json config = rows("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  config["model_name_or_path"] = (folder_ / "model").string();
  write(config);
  EXPECT_EQ(validate().code, 0) << report_;
  EXPECT_THAT(report_.at("checked").at("model").get<std::string>(), HasSubstr("random"));
  fs::remove(folder_ / "model/chat_template.jinja");
  EXPECT_EQ(validate().code, 3);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(problems()[0], HasSubstr("chat template"));
}

TEST_F(Validate, SaysOfRowsWhatARunWouldSay) {
  write_untrained_model(folder_ / "model");
  Json config = rows("{\"prompt\": \"q\", \"completion\": \"a\"}\n{\"prompt\": \"q\", \"completion\": \"\"}\n");
  config.update({{"model_name_or_path", (folder_ / "model").string()}, {"skip_empty_answers", true}});
  write(config);
  const Outcome outcome = validate();
  EXPECT_EQ(outcome.code, 0) << report_;
  EXPECT_THAT(report_.at("warnings").dump(), HasSubstr("prompt and completion are strings in 1 row"));
  EXPECT_THAT(outcome.err, HasSubstr("1 of 2 rows left out (skip_empty_answers)"));
}

TEST_F(Validate, TokensMustFitTheVocabulary) {
  write(rows("{\"input_ids\": [5, 64, 7]}\n"));
  EXPECT_EQ(validate().code, 3);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_THAT(problems()[0], HasSubstr("64"));
  write_untrained_model(folder_ / "model");
  Json model = read_json(folder_ / "model/config.json");
  model["vocab_size"] = 390;
  write_file(folder_ / "model/config.json", dump_json(model));
  Json config = rows("{\"input_ids\": [5, 64, 7]}\n");
  config["model_name_or_path"] = (folder_ / "model").string();
  config["random_init"] = true;
  write(config);
  EXPECT_EQ(validate().code, 0);
  EXPECT_THAT(report_.at("warnings").at(0).get<std::string>(), HasSubstr("390"));
}

TEST_F(Validate, AModelThatCannotBeTrainedIsTold) {
  fs::create_directories(folder_ / "model");
  fs::copy_file(kGoldens / "llama_gqa3_tied/model.safetensors", folder_ / "model/model.safetensors");
  Json model = read_json(kGoldens / "llama_gqa3_tied/config.json");
  model["intermediate_size"] = 30;
  write_file(folder_ / "model/config.json", dump_json(model));
  Json config = tiny_run(folder_ / "out");
  config["model_name_or_path"] = (folder_ / "model").string();
  write(config);
  EXPECT_EQ(validate().code, 3);
  EXPECT_EQ(problems().size(), 6u) << "three weights of two layers" << report_;
  EXPECT_THAT(problems()[0], HasSubstr("gate_proj"));
}

TEST_F(Validate, WhatDoesNotFitInMemoryIsTold) {
  write_untrained_model(folder_ / "model");
  Json model = read_json(folder_ / "model/config.json");
  model.update({{"hidden_size", 65536}, {"intermediate_size", 262144}, {"num_hidden_layers", 80}, {"head_dim", 128}});
  write_file(folder_ / "model/config.json", dump_json(model));
  Json config = tiny_run(folder_ / "out");
  config["model_name_or_path"] = (folder_ / "model").string();
  write(config);
  EXPECT_EQ(validate().code, 4) << report_;
  EXPECT_EQ(report_.at("problems")[0].at("kind"), "memory");
  EXPECT_THAT(problems()[0], HasSubstr("optimizer"));
}

TEST_F(Validate, NamesTheOptimizersThatAreHere) {
  write(tiny_run(folder_ / "out"));
  EXPECT_EQ(validate({"optim=lomo"}).code, 2);
  ASSERT_EQ(problems().size(), 1u) << report_;
  EXPECT_THAT(problems()[0], HasSubstr("optim \"lomo\" is not available"));
  EXPECT_EQ(validate({"optim=muon", "optim_args=ns_steps=3"}).code, 0) << report_;
}

TEST_F(Validate, OverridesCount) {
  write(tiny_run(folder_ / "out"));
  EXPECT_EQ(validate({"max_grad_norm=-1"}).code, 2);
  EXPECT_THAT(problems()[0], HasSubstr("max_grad_norm"));
}

}  // namespace
}  // namespace qtrain::e2e
