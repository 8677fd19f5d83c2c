#include "config/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "config/check.h"
#include "config/fields.h"
#include "config/reference.h"
#include "core/device.h"
#include "core/os/file.h"
#include "tests/config/support.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> refusals(std::string_view text) {
  std::vector<std::string> causes;
  for (const ErrorText& e : unsupported(parse_config(text, "c.json"))) causes.push_back(e.cause);
  return causes;
}

TEST(ConfigErrors, AllProblemsAreToldAtOnce) {
  const auto message = complaint_about("{\"sed\": 1,\n\"max_length\": 0,\n\"optim\": \"adam\"}");
  EXPECT_THAT(message, StartsWith("c.json: 3 problems"));
  EXPECT_THAT(message, HasSubstr("c.json:1: unknown key \"sed\""));
  EXPECT_THAT(message, HasSubstr("c.json:2: \"max_length\" must be"));
  EXPECT_THAT(message, HasSubstr("c.json:3: \"optim\" expected one of"));
}

TEST(ConfigErrors, EndlessProblemsAreCutShort) {
  Json config = Json::object();
  for (int i = 0; i < 2'000; ++i) config[fmt::format("no_such_key_{}", i)] = i;
  const std::string message = complaint_about(config.dump());
  EXPECT_THAT(message, StartsWith("c.json: 2000 problems"));
  EXPECT_THAT(message, HasSubstr("and 1950 more"));
  EXPECT_LT(message.size(), 10'000u);
}

TEST(ConfigErrors, JsonIsStrictButForComments) {
  EXPECT_EQ(value_of("// a\n{\"seed\": /* b */ 7 // c\n}").training.seed, 7);
  EXPECT_THAT(complaint_about("{\"seed\": 1,\n\"seed\": 1}"), HasSubstr("c.json:2"));
  EXPECT_THAT(complaint_about("{\"seed\": 1,\n\"seed\": 1}"), HasSubstr("\"seed\" is given twice"));
  EXPECT_THAT(complaint_about("{\"seed\": 1,}"), HasSubstr("c.json:1"));
  EXPECT_THAT(complaint_about("{\"learning_rate\": NaN}"), HasSubstr("c.json:1"));
  EXPECT_THAT(complaint_about("{\"learning_rate\": 1e999}"), HasSubstr("c.json:1"));
  EXPECT_THAT(complaint_about("[1]"), HasSubstr("a config must be an object"));
  EXPECT_THAT(complaint_about(""), HasSubstr("c.json"));
}

TEST(ConfigErrors, AnUnknownOptimizerNamesThoseThatWork) {
  EXPECT_EQ(complaint_about(R"({"optim": "adm"})"),
            "c.json:1: \"optim\" expected one of adamw_torch_fused, adamw_8bit, lion_32bit, lion_8bit, sgd, adafactor, "
            "muon (other names of these are in docs/optimizers.md), got \"adm\"");
  for (const char* near : {"adagrade", "rmsprob", "galore_adam"})
    for (const char* absent : {"adagrad\"", "rmsprop\"", "galore"})
      EXPECT_EQ(complaint_about(fmt::format(R"({{"optim": "{}"}})", near)).find(fmt::format("mean \"{}", absent)),
                std::string::npos);
}

TEST(ConfigErrors, Contradictions) {
  EXPECT_THAT(complaint_about("{\"bf16\": true,\n\"fp16\": true}"), HasSubstr("c.json:2: bf16 and fp16 are both true"));
  EXPECT_THAT(complaint_about(R"({"warmup_steps": 1.5})"), HasSubstr("must be a whole number"));
  EXPECT_THAT(complaint_about(R"({"save_steps": 2.5})"), HasSubstr("save_steps is 2.5"));
  EXPECT_THAT(complaint_about(R"({"logging_steps": 0})"), HasSubstr("needs logging_steps above 0"));
  EXPECT_THAT(complaint_about("{\n\"output_dir\": \"\"}"), StartsWith("c.json:2: output_dir is empty"));
  EXPECT_THAT(complaint_about(R"({"metric_for_best_model": "bleu"})"), HasSubstr("\"bleu\" is not computed here"));
  EXPECT_THAT(complaint_about(R"({"eval_strategy": "steps"})"), HasSubstr("nothing to evaluate on"));
  EXPECT_THAT(complaint_about(R"({"packing": true, "max_length": null})"), HasSubstr("packing needs max_length"));
  EXPECT_THAT(complaint_about(R"({"load_best_model_at_end": true})"), HasSubstr("eval_strategy is no"));
  EXPECT_THAT(complaint_about(R"({"load_best_model_at_end": true, "eval_strategy": "epoch", "eval_file": "e"})"),
              HasSubstr("eval_strategy is epoch, save_strategy steps"));
  EXPECT_THAT(
      complaint_about(R"({"load_best_model_at_end": true, "eval_strategy": "steps", "eval_file": "e", "eval_steps": 3,
                            "save_steps": 10})"),
      HasSubstr("multiple of eval_steps"));
  EXPECT_THAT(
      complaint_about(R"({"load_best_model_at_end": true, "eval_strategy": "steps", "eval_file": "e", "eval_steps": 5,
                            "save_steps": 10})"),
      "no error");
}

TEST(ConfigErrors, ScheduleArgumentsAreCheckedAtTheStart) {
  EXPECT_THAT(complaint_about("{\"lr_scheduler_type\": \"cosine\",\n\"lr_scheduler_kwargs\": {\"cycles\": 2}}"),
              StartsWith("c.json:2: lr_scheduler_kwargs: schedule cosine has no argument \"cycles\""));
  EXPECT_THAT(complaint_about(R"({"lr_scheduler_type": "greedy"})"), HasSubstr("not available"));
  EXPECT_THAT(complaint_about(R"({"lr_scheduler_type": "cosin"})"),
              AllOf(HasSubstr("reduce_lr_on_plateau"), Not(HasSubstr("greedy"))));
  EXPECT_THAT(complaint_about(R"({"lr_scheduler_type": "cosine_with_min_lr"})"), HasSubstr("needs min_lr"));
}

TEST(ConfigErrors, WhatFollowsEvaluationsNeedsThem) {
  EXPECT_THAT(complaint_about(R"({"lr_scheduler_type": "reduce_lr_on_plateau"})"),
              HasSubstr("the schedule reduce_lr_on_plateau follows evaluations, but eval_strategy is no"));
  EXPECT_THAT(complaint_about(R"({"early_stopping_patience": 3})"),
              HasSubstr("early_stopping_patience counts evaluations, but eval_strategy is no"));
  const char* both = R"({"lr_scheduler_type": "reduce_lr_on_plateau", "early_stopping_patience": 3,
                         "eval_strategy": "epoch", "eval_file": "e"})";
  EXPECT_EQ(complaint_about(both), "no error");
  EXPECT_EQ(parse_config(both, "c.json").value.training.metric_for_best_model, "loss");
}

// `estimate` may ask about GPUs for a config with device cpu, and the other way round; the number of ranks is that of
// the actual run.
TEST(ConfigErrors, DependOnThePlaceOfTheRun) {
  const auto causes = [](const char* keys, const RunPlace& place) {
    std::string all;
    for (const ErrorText& e : unsupported(parse_config(keys, "c.json"), place)) all += e.cause + "\n";
    return all;
  };
  const char* grouped = R"({"model_name_or_path": "m", "device": "cpu", "nproc": 4, "zero_stage": 1,
                            "zero_group_size": 2})";
  EXPECT_EQ(causes(grouped, {}), "");
  EXPECT_EQ(causes(grouped, {.device = DeviceKind::cuda}), "");
  EXPECT_THAT(causes(grouped, {.ranks = 5}), HasSubstr("does not divide the 5 ranks"));
  const char* alone = R"({"model_name_or_path": "m", "device": "cpu", "nproc": 4, "zero_stage": 1, "optim": "muon",
                          "zero_group_size": 1})";
  EXPECT_EQ(causes(alone, {}), "");
  EXPECT_THAT(causes(alone, {.device = DeviceKind::cuda}), HasSubstr("GPUs may choose different GEMM algorithms"));
  const char* machines = R"({"model_name_or_path": "m", "nproc": 8, "zero_stage": 3, "zero_group_size": -1,
                             "optim": "muon", "weight_offload": true})";
  EXPECT_EQ(causes(machines, {.ranks = 8, .device = DeviceKind::cuda}), "");
  EXPECT_THAT(causes(machines, {.ranks = 16, .device = DeviceKind::cuda}), HasSubstr("offloaded to the host differ"))
      << "ranks that another program started on two machines";
  const char* shared = R"({"model_name_or_path": "m", "device": "cpu", "context_parallel_size": 4, "nproc": 2})";
  EXPECT_THAT(causes(shared, {}), HasSubstr("does not divide the 2 ranks"));
  EXPECT_EQ(causes(shared, {.ranks = 8}), "");
  EXPECT_THAT(causes(shared, {.ranks = 6}), HasSubstr("does not divide the 6 ranks"));
  EXPECT_EQ(causes(R"({"model_name_or_path": "m", "device": "cuda"})", {.device = DeviceKind::cuda}), "");
}

TEST(ConfigErrors, FileTroubles) {
  const auto dir = std::filesystem::temp_directory_path() / "qtrain_config_test";
  std::filesystem::create_directories(dir);
  const auto kind_of = [](const std::filesystem::path& file) {
    return test::error_of([&] { load_config(file); }).exit_code();
  };
  EXPECT_EQ(kind_of(dir / "absent.json"), 2);
  EXPECT_EQ(kind_of(dir), 2);
  std::ofstream(dir / "bad.json") << "{\"a\": }";
  EXPECT_EQ(kind_of(dir / "bad.json"), 2);
  EXPECT_EQ(check_config(dir / "bad.json").problems.size(), 1u);
  std::ofstream(dir / "two.json") << R"({"a_key": 1, "b_key": 2})";
  EXPECT_EQ(check_config(dir / "two.json").problems.size(), 2u);
  std::filesystem::remove_all(dir);
}

TEST(ConfigAliases, SetTheCanonicalKey) {
  const ResolvedConfig c = parse_config(
      "{\"train_file\": [\"a\", \"b\"], \"validation_file\": \"v\",\n\"use_lora\": true, "
      "\"target_modules\": [\"q_proj\"], \"cutoff_len\": 33}",
      "c.json");
  EXPECT_THAT(c.value.data.dataset_name, ElementsAre("a", "b"));
  EXPECT_THAT(c.value.data.eval_dataset_name, ElementsAre("v"));
  EXPECT_TRUE(c.value.lora.use_peft);
  EXPECT_THAT(c.value.lora.lora_target_modules, ElementsAre("q_proj"));
  EXPECT_EQ(c.value.data.max_length, 33);
  EXPECT_EQ(c.dialect, "hf");
  EXPECT_EQ(c.origin.at("use_peft"), "c.json:2 (use_lora)");
  EXPECT_EQ(c.origin.at("seed"), "default (hf)");
  EXPECT_TRUE(c.given("use_peft"));
  EXPECT_FALSE(c.given("seed"));
}

TEST(ConfigValues, WordsThatStandForSettings) {
  const Config packed = value_of(R"({"packing": "wrapped"})");
  EXPECT_TRUE(packed.data.packing);
  EXPECT_EQ(packed.data.train_packing(), Packing::wrapped);
  EXPECT_EQ(packed.data.evaluation_packing(), Packing::wrapped);
  EXPECT_EQ(value_of(R"({"packing": true, "eval_packing": false})").data.evaluation_packing(), Packing::none);
  EXPECT_EQ(value_of(R"({"packing_strategy": "bfd-requeue"})").data.packing_strategy, Packing::bfd_split);
  EXPECT_EQ(value_of("{}").data.train_packing(), Packing::none);
  for (const auto& [json, policy] : {std::pair{"false", "none"},
                                     {"true", "block"},
                                     {R"("full")", "block"},
                                     {R"("selective")", "selective"},
                                     {R"("blocks:4")", "blocks:4"},
                                     {R"("auto")", "auto"}})
    EXPECT_EQ(value_of(fmt::format(R"({{"gradient_checkpointing": {}}})", json)).training.gradient_checkpointing.policy,
              policy);
  EXPECT_EQ(value_of(R"({"max_length": null})").data.max_length, std::nullopt);
  EXPECT_THAT(value_of(R"({"report_to": ["none"]})").training.report_to, IsEmpty());
  EXPECT_EQ(value_of(R"({"resume_from_checkpoint": false})").training.resume_from_checkpoint, "never");
  EXPECT_FALSE(value_of(R"({"fp16": true})").training.bf16);
}

TEST(ConfigValues, StepCounts) {
  TrainingSection t;
  t.warmup_ratio = 0.03;
  EXPECT_EQ(warmup_steps(t, 100), 3);
  EXPECT_EQ(warmup_steps(t, 101), 4);  // rounded up
  t.warmup_steps = 0.5;
  EXPECT_EQ(warmup_steps(t, 101), 51);
  t.warmup_steps = 7;
  EXPECT_EQ(warmup_steps(t, 100), 7);
  EXPECT_EQ(interval_steps(0.1, 55), 6);
  EXPECT_EQ(interval_steps(500, 55), 500);
}

TEST(ConfigValues, EvalStepsFollowLoggingSteps) {
  EXPECT_EQ(value_of(R"({"eval_strategy": "steps", "eval_file": "e", "logging_steps": 7})").training.eval_steps, 7);
  EXPECT_EQ(value_of(R"({"logging_steps": 7})").training.eval_steps, std::nullopt);
}

TEST(ConfigValues, TildeIsTheHomeFolder) {
  ASSERT_EQ(setenv("HOME", "/home/somebody", 1), 0);
  EXPECT_EQ(value_of(R"({"output_dir": "~/run"})").training.output_dir, "/home/somebody/run");
  EXPECT_EQ(value_of(R"({"output_dir": "a/~"})").training.output_dir, "a/~");
}

TEST(ConfigOverrides, AreJsonOrElseText) {
  const Config c =
      value_of(R"({"seed": 1, "model_name_or_path": "m"})",
               {{"seed", "2"}, {"output_dir", "runs/a b"}, {"bf16", "false"}, {"train_file", "[\"x\",\"y\"]"}});
  EXPECT_EQ(c.training.seed, 2);
  EXPECT_EQ(c.training.output_dir, "runs/a b");
  EXPECT_FALSE(c.training.bf16);
  EXPECT_THAT(c.data.dataset_name, ElementsAre("x", "y"));
}

TEST(ConfigOverrides, WinOverTheFileUnderAnyName) {
  const ResolvedConfig c =
      parse_config(R"({"max_seq_length": 10})", "c.json", {{"max_length", "20"}, {"max_length", "30"}});
  EXPECT_EQ(c.value.data.max_length, 30);
  EXPECT_EQ(c.origin.at("max_length"), "command line");
}

TEST(ConfigOverrides, ReplaceTheKeyOfTheFileWhateverItsKind) {
  constexpr const char
      *kAxolotl = R"("base_model": "m", "micro_batch_size": 1, "output_dir": "o", )",
      *kPaths = R"("datasets": [{"path": "old.jsonl", "type": "chat_template"}])",
      *kMixture = R"("datasets": [{"path": "old.jsonl", "type": "chat_template", "field_messages": "d"}])",
      *kTexts = R"("datasets": [{"path": "old.jsonl", "type": "completion"}])",
      *kWrong = R"("datasets": [{"path": "old.jsonl", "type": "dpo"}])",
      *kHf = R"("model_name_or_path": "m", "output_dir": "o", )",
      *kLf = R"("model_name_or_path": "m", "stage": "sft", "finetuning_type": "full", "dataset": "old.json")";
  const std::string mixture = R"([{"path": "new.jsonl", "type": "chat_template", "field_messages": "talk"}])",
                    path = R"([{"path": "new.jsonl", "type": "chat_template"}])";
  const struct {
    std::string file;
    Overrides overrides;
    std::vector<std::string> names;  // dataset_name
    const char* source = nullptr;    // path of the single source in dataset_mixture
  } cases[] = {
      {std::string("{") + kAxolotl + kPaths + "}", {{"datasets", mixture}}, {}, "new.jsonl"},
      {std::string("{") + kAxolotl + kMixture + "}", {{"datasets", path}}, {"new.jsonl"}},
      {std::string("{") + kAxolotl + kMixture + "}", {{"datasets", mixture}}, {}, "new.jsonl"},
      {std::string("{") + kAxolotl + kMixture + "}", {{"dataset_name", "new.jsonl"}}, {"new.jsonl"}},
      {std::string("{") + kAxolotl + kTexts + "}", {{"datasets", path}}, {"new.jsonl"}},
      {std::string("{") + kAxolotl + kWrong + "}", {{"datasets", path}}, {"new.jsonl"}},
      {std::string("{") + kAxolotl + kPaths + "}",
       {{"dataset_mixture", R"([{"path": "new.jsonl"}])"}},
       {},
       "new.jsonl"},
      {std::string("{") + kHf + R"("dataset_mixture": [{"path": "old.jsonl"}]})",
       {{"dataset_name", "new.jsonl"}},
       {"new.jsonl"}},
      {std::string("{") + kHf + R"("dataset_name": "old.jsonl"})",
       {{"dataset_mixture", R"([{"path": "new.jsonl"}])"}},
       {},
       "new.jsonl"},
      {std::string("{") + kHf + R"("dataset_name": ["old.jsonl", "older.jsonl"]})",
       {{"dataset_name", "a.jsonl"}, {"dataset_name", "new.jsonl"}},
       {"new.jsonl"}},
      {std::string("{") + kLf + "}", {{"dataset_name", "new.jsonl"}}, {"new.jsonl"}},
      {std::string("{") + kLf + "}", {{"dataset", "new.jsonl"}}, {"new.jsonl"}},
  };
  for (const auto& c : cases) {
    const ResolvedConfig config = parse_config(c.file, "c.json", c.overrides);
    const DataSection& d = config.value.data;
    EXPECT_EQ(d.dataset_name, c.names) << c.file << c.overrides[0].second;
    ASSERT_EQ(d.dataset_mixture.size(), c.source ? 1u : 0u) << c.file << c.overrides[0].second;
    for (const Json& source : d.dataset_mixture)
      EXPECT_THAT(dump_json(source), HasSubstr(c.source)) << c.file << c.overrides[0].second;
  }
  const ResolvedConfig texts = parse_config(std::string("{") + kAxolotl + kTexts + "}", "c.json", {{"datasets", path}});
  EXPECT_TRUE(texts.value.data.assistant_only_loss) << "the settings in the replaced list are gone with it";
  EXPECT_EQ(value_of(R"({"lora_target_modules": ["q_proj", "v_proj"], "use_peft": true})",
                     {{"lora_target_modules", R"(["o_proj"])"}})
                .lora.lora_target_modules,
            std::vector<std::string>{"o_proj"});
  EXPECT_EQ(
      value_of(R"({"column_mapping": {"prompt": "q"}})", {{"column_mapping", R"({"text": "t"})"}}).data.column_mapping,
      (Json{{"text", "t"}}));
  EXPECT_EQ(value_of(R"({"eval_dataset_name": ["a", "b"]})", {{"eval_dataset_name", "c"}}).data.eval_dataset_name,
            std::vector<std::string>{"c"});
}

TEST(ConfigOverrides, DotsReachIntoObjects) {
  const Config c = value_of(R"({"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-6}})",
                            {{"lr_scheduler_kwargs.num_cycles", "0.75"}});
  EXPECT_EQ(c.training.lr_scheduler_kwargs, (Json{{"min_lr", 1e-6}, {"num_cycles", 0.75}}));
  EXPECT_EQ(value_of(R"({"training": {"config": {"epochs": 1}}})", {{"training.config.epochs", "2.5"}})
                .training.num_train_epochs,
            2.5);
  EXPECT_EQ(value_of("{}", {{"peft_config.r", "4"}}).lora.lora_r, 4);
  EXPECT_THAT(complaint_about("{}", {{"training_args.sede", "4"}}), HasSubstr("unknown key \"training_args.sede\""));
}

TEST(ConfigNotes, WarnOfAForgottenUsePeft) {
  const ResolvedConfig c = parse_config("{\"seed\": 1,\n\"lora_r\": 8, \"lora_dropout\": 0.1}", "c");
  EXPECT_THAT(c.diagnostics.warnings(),
              ElementsAre("c:2: LoRA keys are given but use_peft is not true: all weights will be trained "
                          "(lora_r, lora_dropout)"));
  EXPECT_EQ(c.diagnostics.ignored().at("lora_r"),
            (Json{{"value", 8}, {"origin", "c:2"}, {"reason", "use_peft is not true"}}));
  EXPECT_TRUE(c.diagnostics.ignored().contains("lora_dropout"));
  for (const char* fine : {R"({"lora_r": 8, "use_peft": true})", R"({"lora_r": 8, "use_peft": false})",
                           R"({"lora_r": 8, "adapter_name_or_path": "a"})", R"({"use_dora": false})"}) {
    EXPECT_THAT(parse_config(fine, "c").diagnostics.warnings(), IsEmpty()) << fine;
    EXPECT_THAT(parse_config(fine, "c").diagnostics.ignored(), IsEmpty()) << fine;
  }
}

TEST(ConfigNotes, AKeyWithoutEffectIsToldOnceAndTakenBackOnTheCommandLine) {
  const auto told = [](const Overrides& overrides) {
    const ResolvedConfig c = parse_config(R"({"use_unsloth": true, "use_sdpa": true})", "c.json", overrides);
    std::vector<std::string> lines;
    for (const std::string& note : c.diagnostics.notes())
      if (note.find("\"use_unsloth\"") != std::string::npos) lines.push_back(note);
    EXPECT_EQ(c.diagnostics.ignored().contains("use_unsloth"), !lines.empty());
    EXPECT_TRUE(c.diagnostics.ignored().contains("use_sdpa"));
    return lines;
  };
  EXPECT_THAT(told({}), ElementsAre(StartsWith("c.json:1: \"use_unsloth\" has no effect: ")));
  EXPECT_THAT(told({{"use_unsloth", "4"}}), ElementsAre(StartsWith("command line: \"use_unsloth\"")));
  EXPECT_THAT(told({{"use_unsloth", "null"}}), IsEmpty());
  EXPECT_THAT(told({{"use_unsloth", "false"}}), IsEmpty()) << "the program does this anyway";
  // An override can also remove a value that is refused, or one that is rewritten with a remark.
  const std::string refused = R"({"tp_size": 2})", rewritten = "special_tokens: {bos_token: x}\nadapter: lora\n";
  EXPECT_THAT(complaint_about(refused), HasSubstr("cannot be honored"));
  EXPECT_EQ(complaint_about(refused, {{"tp_size", "null"}}), "no error");
  EXPECT_THAT(parse_config(rewritten, "c.yaml").diagnostics.notes(), Contains(HasSubstr("\"special_tokens\"")));
  EXPECT_THAT(parse_config(rewritten, "c.yaml", {{"special_tokens", "null"}}).diagnostics.notes(),
              Not(Contains(HasSubstr("\"special_tokens\""))));
}

TEST(ConfigSupport, WhatIsMissingIsSaid) {
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m"})"), IsEmpty());
  EXPECT_THAT(refusals("{}"), ElementsAre("model_name_or_path is missing"));
  for (const char* accepted :
       {R"("none")", R"("tensorboard")", R"("all")", R"(["tensorboard"])", "null", R"(["wandb", "mlflow"])"})
    EXPECT_THAT(refusals(fmt::format(R"({{"model_name_or_path": "m", "report_to": {}}})", accepted)), IsEmpty());
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m", "report_to": ["comet_ml", "wandb", "neptune"]})"),
              ElementsAre("report_to \"comet_ml\": nothing can be sent there",
                          "report_to \"neptune\": nothing can be sent there"));
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m", "optim": "lomo", "fp16": true, "nproc": 2, "node_rank": 1})"),
              ::testing::SizeIs(2));
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m", "device": "cuda"})"),
              ::testing::SizeIs(cuda_problem().empty() ? 0 : 1));
  for (const char* optim : {"adamw_torch", "adamw_hf", "paged_adamw_32bit", "adamw_apex_fused"})
    EXPECT_EQ(find_optimizer(optim)->rule, "adamw") << optim;
  EXPECT_EQ(find_optimizer("adamw_bnb_8bit")->rule, "adamw_8bit");
}

TEST(ConfigSupport, OptimizersSayWhatTheyTake) {
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m", "optim": "galore_adamw"})"),
              ElementsAre("optim \"galore_adamw\" is not available"));
  EXPECT_THAT(complaint_about("{\"optim\": \"sgd\",\n\"optim_args\": \"momenta=0.9\"}"),
              HasSubstr("c.json:2: optim_args: optim sgd has no argument \"momenta\""));
  const Config config = parse_config(R"({"optim": "sgd", "optim_args": "momentum=0.9"})", "c").value;
  EXPECT_EQ(optimizer_options(config.training).arguments, "momentum=0.9");
  EXPECT_EQ(parse_config(R"({"optim_args": null})", "c").value.training.optim_args, std::nullopt);
}

TEST(ConfigDump, HasValueAndOriginOfEachKey) {
  const Json j = resolved_json(parse_config(R"({"learning_rate": 5e-4})", "c.json"));
  EXPECT_EQ(j.at("dialect"), "hf");
  EXPECT_EQ(j.at("values").at("learning_rate"), (Json{{"value", 5e-4}, {"origin", "c.json:1"}}));
  EXPECT_EQ(j.at("values").at("gradient_checkpointing").at("value"), true);
  EXPECT_EQ(j.at("values").at("lr_scheduler_type").at("value"), "linear");
}

TEST(ConfigReference, HasASectionForEveryKey) {
  const std::string page = config_reference();
  const Json values = resolved_json(parse_config("{}", "c")).at("values");
  for (const auto& [key, entry] : values.items()) EXPECT_THAT(page, HasSubstr("\n### `" + key + "`\n")) << key;
  EXPECT_THAT(page, HasSubstr("`max_seq_length`"));
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 450u) << line;
}

// `qtrain config > docs/config.md` writes the page.
TEST(ConfigReference, IsTheCommittedPage) {
  EXPECT_EQ(config_reference(), read_text(std::string(QTRAIN_SOURCE_DIR) + "/docs/config.md"));
}

}  // namespace
}  // namespace qtrain
