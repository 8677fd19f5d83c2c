#include "train/config/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/device.h"
#include "core/file.h"

namespace qtrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Config value_of(std::string_view text, const Overrides& overrides = {}) {
  return parse_config(text, "c.json", overrides).value;
}

/// The message of the usage error that a config ends in.
std::string complaint(std::string_view text, const Overrides& overrides = {}) {
  try {
    parse_config(text, "c.json", overrides);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2) << e.what();
    return e.what();
  }
  return "no error";
}

std::vector<std::string> refusals(std::string_view text) {
  std::vector<std::string> causes;
  for (const ErrorText& e : unsupported(parse_config(text, "c.json"))) causes.push_back(e.cause);
  return causes;
}

TEST(ConfigErrors, UnknownKeysNameTheNearest) {
  EXPECT_EQ(complaint("{\n\"learning_rat\": 1}"),
            "c.json:2: unknown key \"learning_rat\"\n  did you mean \"learning_rate\"?");
  EXPECT_THAT(complaint(R"({"gradient_acumulation_steps": 1})"),
              HasSubstr("did you mean \"gradient_accumulation_steps\"?"));
  EXPECT_THAT(complaint(R"({"max_lenght": 1})"), HasSubstr("did you mean \"max_length\"?"));
  EXPECT_THAT(complaint(R"({"lerning": 1})"), HasSubstr("did you mean \"learning_rate\"?"));
  EXPECT_THAT(complaint(R"({"lora": 1})"), HasSubstr("did you mean \"lora_r\"?"));
  EXPECT_THAT(complaint(R"({"zz": 1})"), HasSubstr("qtrain config lists all keys"));
  EXPECT_THAT(complaint(R"({"xyzzy_plugh_quux": 1})"), HasSubstr("qtrain config lists all keys"));
  EXPECT_THAT(complaint("{}", {{"lora_rr", "8"}}), StartsWith("command line: unknown key \"lora_rr\""));
}

TEST(ConfigErrors, AllProblemsAreToldAtOnce) {
  const auto message = complaint("{\"sed\": 1,\n\"max_length\": 0,\n\"optim\": \"adam\"}");
  EXPECT_THAT(message, StartsWith("c.json: 3 problems"));
  EXPECT_THAT(message, HasSubstr("c.json:1: unknown key \"sed\""));
  EXPECT_THAT(message, HasSubstr("c.json:2: \"max_length\" must be"));
  EXPECT_THAT(message, HasSubstr("c.json:3: \"optim\" expected one of"));
}

TEST(ConfigErrors, JsonIsStrictButForComments) {
  EXPECT_EQ(value_of("// a\n{\"seed\": /* b */ 7 // c\n}").training.seed, 7);
  EXPECT_THAT(complaint("{\"seed\": 1,\n\"seed\": 1}"), HasSubstr("c.json:2"));
  EXPECT_THAT(complaint("{\"seed\": 1,\n\"seed\": 1}"), HasSubstr("\"seed\" is given twice"));
  EXPECT_THAT(complaint("{\"seed\": 1,}"), HasSubstr("c.json:1"));
  EXPECT_THAT(complaint("{\"learning_rate\": NaN}"), HasSubstr("c.json:1"));
  EXPECT_THAT(complaint("{\"learning_rate\": 1e999}"), HasSubstr("c.json:1"));
  EXPECT_THAT(complaint("[1]"), HasSubstr("a config is an object"));
  EXPECT_THAT(complaint(""), HasSubstr("c.json"));
}

TEST(ConfigErrors, TypesNameKeyLineAndWhatIsExpected) {
  EXPECT_EQ(complaint("{\n\n\"bf16\": 1}"), "c.json:3: \"bf16\" expected true or false, got 1");
  EXPECT_EQ(complaint(R"({"learning_rate": "2e-4"})"),
            "c.json:1: \"learning_rate\" expected a number, got \"2e-4\"\n  write it without quotes");
  EXPECT_THAT(complaint(R"({"per_device_train_batch_size": 1.5})"), HasSubstr("expected an integer, got 1.5"));
  EXPECT_THAT(complaint(R"({"per_device_train_batch_size": true})"), HasSubstr("expected an integer"));
  EXPECT_THAT(complaint(R"({"dataset_name": [1]})"), HasSubstr("expected a string or a list of strings"));
  EXPECT_THAT(complaint(R"({"lr_scheduler_kwargs": 3})"), HasSubstr("expected an object"));
  EXPECT_THAT(complaint(R"({"model_name_or_path": {}})"), HasSubstr("expected a string"));
  EXPECT_THAT(complaint(R"({"group_by_length": "yes"})"), HasSubstr("expected true or false"));
  EXPECT_THAT(complaint(R"({"gradient_checkpointing": "some"})"), HasSubstr("expected true, false, \"selective\""));
}

TEST(ConfigErrors, ChoicesNameTheNearest) {
  EXPECT_THAT(complaint(R"({"lr_scheduler_type": "cosin"})"), HasSubstr("did you mean \"cosine\"?"));
  EXPECT_THAT(complaint(R"({"optim": "adamw_touch"})"), HasSubstr("did you mean \"adamw_torch\"?"));
  EXPECT_THAT(complaint(R"({"eval_strategy": "step"})"), HasSubstr("did you mean \"steps\"?"));
}

TEST(ConfigErrors, Ranges) {
  EXPECT_THAT(complaint(R"({"learning_rate": -1})"), HasSubstr("\"learning_rate\" must be at least 0, got -1"));
  EXPECT_THAT(complaint(R"({"lora_dropout": 1})"), HasSubstr("must be in [0, 1), got 1"));
  EXPECT_THAT(complaint(R"({"adam_beta2": 1.0})"), HasSubstr("must be in [0, 1)"));
  EXPECT_THAT(complaint(R"({"lora_r": 0})"), HasSubstr("must be at least 1"));
  EXPECT_THAT(complaint(R"({"num_train_epochs": 0})"), HasSubstr("must be greater than 0"));
  EXPECT_THAT(complaint(R"({"max_steps": -2})"), HasSubstr("must be at least -1"));
  EXPECT_THAT(complaint(R"({"seed": 18446744073709551615})"), HasSubstr("\"seed\""));
  EXPECT_THAT(complaint(R"({"per_device_train_batch_size": 99999999999})"),
              HasSubstr("must be at least 1 and at most"));
  EXPECT_THAT(complaint(R"({"warmup_ratio": 1.1})"), HasSubstr("must be in [0, 1]"));
  EXPECT_THAT(complaint(R"({"packing_strategy": "ffd"})"), HasSubstr("bfd, bfd_split, wrapped"));
  EXPECT_THAT(complaint(R"({"dtype": "int8"})"), HasSubstr("one of float32, bfloat16, float16, auto"));
}

TEST(ConfigErrors, Contradictions) {
  EXPECT_THAT(complaint("{\"bf16\": true,\n\"fp16\": true}"), HasSubstr("c.json:2: bf16 and fp16 are both true"));
  EXPECT_THAT(complaint(R"({"warmup_steps": 1.5})"), HasSubstr("must be a whole number"));
  EXPECT_THAT(complaint(R"({"save_steps": 2.5})"), HasSubstr("save_steps is 2.5"));
  EXPECT_THAT(complaint(R"({"logging_steps": 0})"), HasSubstr("needs logging_steps above 0"));
  EXPECT_THAT(complaint("{\n\"output_dir\": \"\"}"), StartsWith("c.json:2: output_dir is empty"));
  EXPECT_THAT(complaint(R"({"metric_for_best_model": "bleu"})"), HasSubstr("\"bleu\" is not computed here"));
  EXPECT_THAT(complaint(R"({"eval_strategy": "steps"})"), HasSubstr("nothing to evaluate on"));
  EXPECT_THAT(complaint(R"({"packing": true, "max_length": null})"), HasSubstr("packing needs max_length"));
  EXPECT_THAT(complaint(R"({"load_best_model_at_end": true})"), HasSubstr("eval_strategy is no"));
  EXPECT_THAT(complaint(R"({"load_best_model_at_end": true, "eval_strategy": "epoch", "eval_file": "e"})"),
              HasSubstr("eval_strategy is epoch, save_strategy steps"));
  EXPECT_THAT(complaint(R"({"load_best_model_at_end": true, "eval_strategy": "steps", "eval_file": "e", "eval_steps": 3,
                            "save_steps": 10})"),
              HasSubstr("multiple of eval_steps"));
  EXPECT_THAT(complaint(R"({"load_best_model_at_end": true, "eval_strategy": "steps", "eval_file": "e", "eval_steps": 5,
                            "save_steps": 10})"),
              "no error");
}

TEST(ConfigErrors, ScheduleArgumentsAreCheckedAtTheStart) {
  EXPECT_THAT(complaint("{\"lr_scheduler_type\": \"cosine\",\n\"lr_scheduler_kwargs\": {\"cycles\": 2}}"),
              StartsWith("c.json:2: lr_scheduler_kwargs: schedule cosine has no argument \"cycles\""));
  EXPECT_THAT(complaint(R"({"lr_scheduler_type": "reduce_lr_on_plateau"})"), HasSubstr("not available"));
  EXPECT_THAT(complaint(R"({"lr_scheduler_type": "cosine_with_min_lr"})"), HasSubstr("needs min_lr"));
}

TEST(ConfigErrors, RefusedKeysOnlyWithValuesThatMatter) {
  EXPECT_THAT(complaint("{\n\"neftune_noise_alpha\": 5}"),
              StartsWith("c.json:2: \"neftune_noise_alpha\": 5 cannot be honoured"));
  EXPECT_THAT(complaint(R"({"use_dora": true})"), HasSubstr("only plain LoRA"));
  EXPECT_THAT(complaint(R"({"save_safetensors": false})"), HasSubstr("only written as safetensors"));
  EXPECT_EQ(complaint(R"({"deepspeed": null, "use_dora": false, "fsdp": "", "neftune_noise_alpha": null})"),
            "no error");
}

TEST(ConfigErrors, FileTroubles) {
  const auto dir = std::filesystem::temp_directory_path() / "qtrain_config_test";
  std::filesystem::create_directories(dir);
  const auto kind_of = [](const std::filesystem::path& file) {
    try {
      load_config(file);
    } catch (const Error& e) {
      return e.exit_code();
    }
    return 0;
  };
  EXPECT_EQ(kind_of(dir / "absent.json"), 2);
  EXPECT_EQ(kind_of(dir), 2);
  std::ofstream(dir / "bad.json") << "{\"a\": }";
  EXPECT_EQ(kind_of(dir / "bad.json"), 2);
  EXPECT_EQ(config_problems(dir / "bad.json").size(), 1u);
  std::ofstream(dir / "two.json") << R"({"a_key": 1, "b_key": 2})";
  EXPECT_EQ(config_problems(dir / "two.json").size(), 2u);
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

TEST(ConfigAliases, WithAnotherValueThanTheKeyAreAnError) {
  EXPECT_EQ(
      complaint("{\"max_seq_length\": 512,\n\"max_length\": 1024}"),
      "c.json:2: \"max_length\" is 1024, but \"max_seq_length\" already set max_length to 512\n  keep one of them");
  EXPECT_EQ(value_of(R"({"max_seq_length": 512, "max_length": 512})").data.max_length, 512);
  EXPECT_THAT(complaint(R"({"use_cpu": true, "device": "cuda"})"), HasSubstr("already set device"));
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

TEST(ConfigOverrides, DotsReachIntoObjects) {
  const Config c = value_of(R"({"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-6}})",
                            {{"lr_scheduler_kwargs.num_cycles", "0.75"}});
  EXPECT_EQ(c.training.lr_scheduler_kwargs, (Json{{"min_lr", 1e-6}, {"num_cycles", 0.75}}));
  EXPECT_EQ(value_of(R"({"training": {"config": {"epochs": 1}}})", {{"training.config.epochs", "2.5"}})
                .training.num_train_epochs,
            2.5);
  EXPECT_EQ(value_of("{}", {{"peft_config.r", "4"}}).lora.lora_r, 4);
  EXPECT_THAT(complaint("{}", {{"training_args.sede", "4"}}), HasSubstr("unknown key \"training_args.sede\""));
}

TEST(ConfigDialects, EachHasItsOwnDefaults) {
  const Config hf = value_of("{}");
  EXPECT_EQ(hf.training.max_grad_norm, 1.0);
  EXPECT_EQ(hf.training.optim, "adamw_torch_fused");
  EXPECT_EQ(hf.training.lr_scheduler_type, ScheduleKind::linear);
  EXPECT_EQ(hf.lora.lora_alpha, 8);

  const ResolvedConfig forge = parse_config(
      R"({"provider": "huggingface", "model_name": "m", "dataset": "d.jsonl", "use_4bit": false, "lora_r": 64})",
      "c.json");
  EXPECT_EQ(forge.dialect, "modelforge");
  EXPECT_EQ(forge.value.training.max_grad_norm, 0.3);
  EXPECT_EQ(forge.value.training.optim, "paged_adamw_32bit");
  EXPECT_EQ(forge.value.training.lr_scheduler_type, ScheduleKind::cosine);
  EXPECT_EQ(forge.value.lora.lora_alpha, 32);
  EXPECT_EQ(forge.value.lora.lora_r, 64);
  EXPECT_TRUE(forge.value.lora.use_peft);
  EXPECT_EQ(forge.value.model.model_name_or_path, "m");
  EXPECT_EQ(forge.value.training.eval_strategy, EvalStrategy::steps);  // it holds rows out
  EXPECT_EQ(forge.origin.at("max_grad_norm"), "default (modelforge)");
  EXPECT_THAT(forge.notes[0], HasSubstr("dialect modelforge"));
}

constexpr std::string_view kManifest = R"({
  "name": "sql", "version": "1.0", "description": "", "capabilities": [], "constraints": {}, "license": null,
  "base_model": {"name": "models/base", "quantization": "int4", "sha256": null},
  "training": {
    "dataset": {"path": "train.jsonl", "validation_path": "eval.jsonl", "type": "single", "field_mapping": {"text": "body"}},
    "config": {
      "method": "sft", "adapter_type": "lora", "rank": 16, "alpha": 32, "dropout": 0.05, "target_modules": ["q_proj", "v_proj"],
      "epochs": 2.5, "learning_rate": 1e-4, "batch_size": 4, "gradient_accumulation_steps": 2, "warmup_steps": 10,
      "lr_scheduler": "cosine", "max_seq_length": 512, "use_tf32": true, "use_sdpa": true, "use_unsloth": true,
      "gradient_checkpointing": "selective", "evaluation_strategy": "steps", "eval_steps": 5, "save_strategy": "steps",
      "save_steps": 10, "pretokenized_cache": "cache", "dataloader_prefetch_factor": 4, "packing": true
    },
    "decoding": {"temperature": 0.7}, "metadata": null
  }
})";

TEST(ConfigDialects, ExpertManifest) {
  const ResolvedConfig r = parse_config(kManifest, "c.json");
  const Config& c = r.value;
  EXPECT_EQ(r.dialect, "expert");
  EXPECT_EQ(c.model.model_name_or_path, "models/base");
  EXPECT_TRUE(c.quant.load_in_4bit);
  EXPECT_THAT(c.data.dataset_name, ElementsAre("train.jsonl"));
  EXPECT_THAT(c.data.eval_dataset_name, ElementsAre("eval.jsonl"));
  EXPECT_EQ(c.data.dataset_text_field, "body");
  EXPECT_TRUE(c.lora.use_peft);
  EXPECT_EQ(c.lora.lora_r, 16);
  EXPECT_EQ(c.lora.lora_alpha, 32);
  EXPECT_EQ(c.lora.lora_dropout, 0.05);
  EXPECT_EQ(c.training.num_train_epochs, 2.5);
  EXPECT_EQ(c.training.per_device_train_batch_size, 4);
  EXPECT_EQ(c.training.per_device_eval_batch_size, 4);
  EXPECT_EQ(c.training.lr_scheduler_type, ScheduleKind::cosine);
  EXPECT_EQ(c.training.tf32, true);
  EXPECT_EQ(c.training.gradient_checkpointing.policy, "selective");
  EXPECT_EQ(c.training.eval_strategy, EvalStrategy::steps);
  EXPECT_EQ(c.training.save_total_limit, 3);  // the dialect's default
  EXPECT_EQ(c.data.max_length, 512);
  EXPECT_EQ(r.origin.at("num_train_epochs"), "c.json:8 (training.config.epochs)");
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"training.config.use_unsloth\" has no effect")));
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"training.config.use_sdpa\" has no effect")));
}

TEST(ConfigDialects, ExpertKeysMayStandAtTheTop) {
  const ResolvedConfig r = parse_config(
      R"({"model_name_or_path": "m", "train_file": "t", "eval_file": "e", "batch_size": 2, "epochs": 1})", "c.json");
  EXPECT_EQ(r.dialect, "expert");
  EXPECT_EQ(r.value.training.eval_strategy, EvalStrategy::epoch);
  EXPECT_TRUE(r.value.training.load_best_model_at_end);
}

TEST(ConfigDialects, ExpertPartsThatCannotBeHonoured) {
  EXPECT_THAT(complaint(R"({"training": {"config": {"adapter_type": "ia3"}}})"),
              HasSubstr("\"ia3\" is not available; available: lora"));
  EXPECT_THAT(complaint(R"({"epochs": 1, "base_models": [{"name": "a"}, {"name": "b"}]})"),
              HasSubstr("several base models"));
  EXPECT_THAT(complaint(R"({"epochs": 1, "soft_prompts": [{"name": "p"}]})"),
              HasSubstr("soft prompts are not available"));
  EXPECT_THAT(complaint(R"({"training": {"dataset": {"path": "a", "field_mapping": {"instruction": "q"}}}})"),
              HasSubstr("rename the field"));
  EXPECT_THAT(complaint("{\"training\": {\n\"config\": {\n\"epoch\": 1}}}"),
              StartsWith("c.json:3: unknown key \"training.config.epoch\""));
  EXPECT_EQ(parse_config(R"({"epochs": 1, "base_models": [{"name": "a"}]})", "c").value.model.model_name_or_path, "a");
}

TEST(ConfigDialects, AreNeverMixed) {
  EXPECT_THAT(complaint(R"({"epochs": 1, "use_4bit": false})"), HasSubstr("their defaults differ"));
  EXPECT_EQ(parse_config(R"({"dialect": "hf", "epochs": 1, "use_4bit": false})", "c").dialect, "hf");
  EXPECT_EQ(parse_config("{}", "c", {{"dialect", "modelforge"}}).value.training.max_grad_norm, 0.3);
  EXPECT_THAT(complaint(R"({"dialect": "axolottle"})"),
              HasSubstr("choose one of hf, expert, modelforge, llamafactory, axolotl"));
}

// Keys that have no effect anywhere must not change the defaults of a file with canonical names.
TEST(ConfigDialects, KeysWithoutEffectDoNotDecide) {
  const ResolvedConfig r = parse_config(
      R"({"model_name_or_path": "m", "dataset_name": "d", "use_unsloth": true, "provider": "unsloth", "use_liger_kernel": true,
          "use_sdpa": true, "use_cuda_graphs": true, "eval_split": 0.1})",
      "c.json");
  EXPECT_EQ(r.dialect, "hf");
  EXPECT_EQ(r.value.training.learning_rate, 2e-5);
  for (const char* key : {"use_unsloth", "provider", "use_liger_kernel"}) EXPECT_TRUE(r.inert.contains(key)) << key;
  EXPECT_THAT(r.notes, Contains(HasSubstr("\"provider\" has no effect")));
}

TEST(ConfigDialects, ObjectsOfThePythonLibraries) {
  const Config c =
      value_of(R"({"model_name_or_path": "m", "peft_config": {"r": 4, "lora_alpha": 16, "target_modules": "all-linear",
      "task_type": "CAUSAL_LM"}, "quantization_config": {"load_in_4bit": true, "bnb_4bit_compute_dtype": "torch.bfloat16"},
      "model_init_kwargs": {"dtype": "bfloat16", "attn_implementation": null}})");
  EXPECT_TRUE(c.lora.use_peft);
  EXPECT_EQ(c.lora.lora_r, 4);
  EXPECT_THAT(c.lora.lora_target_modules, ElementsAre("all-linear"));
  EXPECT_EQ(c.quant.bnb_4bit_compute_dtype, "bfloat16");
  EXPECT_EQ(c.model.dtype, "bfloat16");
}

TEST(ConfigNotes, WarnOfAForgottenUsePeft) {
  EXPECT_THAT(parse_config(R"({"lora_r": 8})", "c").notes, Contains(HasSubstr("all weights will be trained")));
  EXPECT_THAT(parse_config(R"({"lora_r": 8, "use_peft": true})", "c").notes, Not(Contains(HasSubstr("all weights"))));
  EXPECT_THAT(parse_config(R"({"report_to": "wandb"})", "c").notes, Contains(HasSubstr("\"wandb\" has no effect")));
}

TEST(ConfigSupport, WhatIsMissingIsSaid) {
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m"})"), IsEmpty());
  EXPECT_THAT(refusals("{}"), ElementsAre("model_name_or_path is missing"));
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m", "optim": "lomo", "fp16": true, "nproc": 2})"),
              ::testing::SizeIs(2));
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m", "device": "cuda"})"),
              ::testing::SizeIs(cuda_problem().empty() ? 0 : 1));
  for (const char* optim : {"adamw_torch", "adamw_hf", "paged_adamw_32bit", "adamw_apex_fused"})
    EXPECT_EQ(find_optimizer(optim)->rule, "adamw") << optim;
  EXPECT_EQ(find_optimizer("adamw_bnb_8bit")->rule, "adamw_8bit");
  EXPECT_THROW(require_trainable(parse_config(R"({"model_name_or_path": "m"})", "c")), Error);
  EXPECT_NO_THROW(require_trainable(parse_config(R"({"model_name_or_path": "m", "dataset_name": "d"})", "c")));
}

TEST(ConfigSupport, OptimizersSayWhatTheyTake) {
  EXPECT_THAT(refusals(R"({"model_name_or_path": "m", "optim": "galore_adamw"})"),
              ElementsAre("optim \"galore_adamw\" is not available"));
  EXPECT_THAT(complaint("{\"optim\": \"sgd\",\n\"optim_args\": \"momenta=0.9\"}"),
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

// What is dumped can be read again and means the same.
TEST(ConfigDump, IsAConfigAgain) {
  const ResolvedConfig first = parse_config(kManifest, "c.json");
  Json flat = {{"dialect", "hf"}};
  const Json resolved = resolved_json(first);
  for (const auto& [key, entry] : resolved.at("values").items()) flat[key] = entry.at("value");
  const Json again = resolved_json(parse_config(flat.dump(), "again.json"));
  for (const auto& [key, entry] : resolved.at("values").items())
    EXPECT_EQ(again.at("values").at(key).at("value"), entry.at("value")) << key;
}

TEST(ConfigReference, HasALineForEveryKey) {
  const std::string page = config_reference();
  const Json values = resolved_json(parse_config("{}", "c")).at("values");
  for (const auto& [key, entry] : values.items()) EXPECT_THAT(page, HasSubstr("| `" + key + "` |")) << key;
  EXPECT_THAT(page, HasSubstr("`max_seq_length`"));
}

// `qtrain config > docs/config.md` writes the page.
TEST(ConfigReference, IsTheCommittedPage) {
  EXPECT_EQ(config_reference(), read_text(std::string(QTRAIN_SOURCE_DIR) + "/docs/config.md"));
}

}  // namespace
}  // namespace qtrain
