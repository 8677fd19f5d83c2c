// What DeepSpeed, FSDP and accelerate configurations set, and what is said of the rest.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "core/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

ResolvedConfig with_deepspeed(const std::string& deepspeed, const std::string& more = "") {
  return parse_config(fmt::format("{{\n\"deepspeed\": {}{}}}", deepspeed, more), "c.json");
}

std::string refusal_of_deepspeed(const std::string& deepspeed, const std::string& more = "") {
  try {
    with_deepspeed(deepspeed, more);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "no error";
}

// Nearly every one that people have is like this: the arguments decide.
constexpr const char* kAutomatic = R"({
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
  "gradient_clipping": "auto", "zero_allow_untested_optimizer": true,
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true, "contiguous_gradients": true,
    "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true},
  "steps_per_print": 2000, "wall_clock_breakdown": false})";

TEST(Deepspeed, AutoLeavesTheArgumentsAndOffloadIsOurs) {
  const ResolvedConfig c = with_deepspeed(kAutomatic, R"(, "learning_rate": 1e-4, "per_device_train_batch_size": 2)");
  EXPECT_TRUE(c.value.training.optimizer_offload);
  EXPECT_EQ(c.origin.at("optimizer_offload"), "c.json:9 (deepspeed.zero_optimization.offload_optimizer.device)");
  EXPECT_EQ(c.value.training.learning_rate, 1e-4);
  EXPECT_EQ(c.value.training.per_device_train_batch_size, 2);
  EXPECT_EQ(c.value.training.gradient_accumulation_steps, 1);
  EXPECT_TRUE(c.value.training.bf16);
  EXPECT_EQ(c.origin.at("bf16"), "default (hf)");
  EXPECT_THAT(c.notes, Contains(HasSubstr("offload_param.device\" has no effect: weights stay on the device")));
  const auto said = std::count_if(c.notes.begin(), c.notes.end(), [](const std::string& note) {
    return note.find("without effect here, on one device") != std::string::npos;
  });
  EXPECT_EQ(said, 1);
}

TEST(Deepspeed, NumbersAreTakenOver) {
  const ResolvedConfig c = with_deepspeed(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3,
      "train_batch_size": 12, "gradient_clipping": 0.5, "bf16": {"enabled": false}, "fp16": {"enabled": true},
      "optimizer": {"type": "Lion", "params": {"lr": 3e-5, "betas": [0.8, 0.95], "weight_decay": 0.1}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 3e-5,
      "warmup_num_steps": 20, "total_num_steps": "auto", "warmup_type": "linear"}}})");
  const TrainingSection& t = c.value.training;
  EXPECT_EQ(t.per_device_train_batch_size, 4);
  EXPECT_EQ(t.gradient_accumulation_steps, 3);
  EXPECT_EQ(t.max_grad_norm, 0.5);
  EXPECT_TRUE(t.fp16 && !t.bf16);
  EXPECT_EQ(t.optim, "lion_32bit");
  EXPECT_EQ(t.learning_rate, 3e-5);
  EXPECT_EQ(t.adam_beta1, 0.8);
  EXPECT_EQ(t.adam_beta2, 0.95);
  EXPECT_EQ(t.weight_decay, 0.1);
  EXPECT_EQ(t.lr_scheduler_type, ScheduleKind::linear);
  EXPECT_EQ(t.warmup_steps, 20);
  EXPECT_EQ(c.origin.at("max_grad_norm"), "c.json:3 (deepspeed.gradient_clipping)");
  EXPECT_FALSE(t.optimizer_offload);
}

TEST(Deepspeed, MismatchesAreToldTogether) {
  const std::string message = refusal_of_deepspeed(
      R"({"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0.5, "bf16": {"enabled": true}, "optimizer": {"params": {"lr": 1e-5}}})",
      ",\n\"batch_size\": 8, \"dialect\": \"hf\", \"max_grad_norm\": 1.0, \"bf16\": false, \"lr\": 1e-4");
  EXPECT_THAT(message, HasSubstr("4 problems"));
  EXPECT_THAT(message, HasSubstr("c.json:2: \"deepspeed.train_micro_batch_size_per_gpu\" is 4, but \"batch_size\" is 8 "
                                 "(c.json:3)"));
  EXPECT_THAT(message, HasSubstr("\"deepspeed.gradient_clipping\" is 0.5, but \"max_grad_norm\" is 1.0"));
  EXPECT_THAT(message, HasSubstr("\"deepspeed.bf16.enabled\" is true, but \"bf16\" is false"));
  EXPECT_THAT(message, HasSubstr("\"deepspeed.optimizer.params.lr\" is 1e-05, but \"lr\" is 0.0001"));
  EXPECT_THAT(message, HasSubstr("\"auto\" in the former"));
}

TEST(Deepspeed, NamesOfOneOptimizerAgree) {
  const char* block = R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})";
  EXPECT_EQ(with_deepspeed(block, R"(, "optim": "adamw_torch_fused")").value.training.optim, "adamw_torch_fused");
  EXPECT_THAT(refusal_of_deepspeed(block, R"(, "optim": "lion_32bit")"), HasSubstr("but \"optim\" is \"lion_32bit\""));
}

TEST(Deepspeed, TheMissingPartOfTheBatchIsWorkedOut) {
  const auto training = [](const char* json, const char* more) { return with_deepspeed(json, more).value.training; };
  EXPECT_EQ(
      training(R"({"train_batch_size": 32})", R"(, "per_device_train_batch_size": 4)").gradient_accumulation_steps, 8);
  EXPECT_EQ(
      training(R"({"train_batch_size": 32})", R"(, "gradient_accumulation_steps": 8)").per_device_train_batch_size, 4);
  EXPECT_THAT(refusal_of_deepspeed(R"({"train_batch_size": 33, "train_micro_batch_size_per_gpu": 4})"),
              HasSubstr("\"deepspeed.train_batch_size\" is 33, but"));
  EXPECT_THAT(refusal_of_deepspeed(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,
                                        "gradient_accumulation_steps": 2})"),
              HasSubstr("x nproc is 8"));
}

TEST(Deepspeed, SchedulesAndWarmUp) {
  const Config c = with_deepspeed(R"({"scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.1,
      "warmup_num_steps": "auto"}}})")
                       .value;
  EXPECT_EQ(c.training.lr_scheduler_type, ScheduleKind::cosine_with_min_lr);
  EXPECT_EQ(c.training.lr_scheduler_kwargs, (Json{{"min_lr_rate", 0.1}}));
  EXPECT_THAT(with_deepspeed(R"({"scheduler": {"type": "WarmupLR"}})").notes,
              Contains(HasSubstr("warm-up is linear here")));
  EXPECT_THAT(refusal_of_deepspeed(R"({"scheduler": {"type": "OneCycle"}})"), HasSubstr("no such schedule"));
  EXPECT_THAT(refusal_of_deepspeed(R"({"scheduler": {"params": {"warmup_num_steps": 9}}})", R"(, "warmup_ratio": 0.1)"),
              HasSubstr("\"warmup_ratio\" is 0.1"));
  EXPECT_THAT(refusal_of_deepspeed(R"({"scheduler": {"params": {"total_num_steps": 9}}})"), HasSubstr("set max_steps"));
}

TEST(Deepspeed, WhatChangesTheResultIsRefusedAndSlipsAreNamed) {
  EXPECT_THAT(refusal_of_deepspeed(R"({"progressive_layer_drop": {"enabled": true, "theta": 0.5}})"),
              HasSubstr("all layers are trained"));
  EXPECT_THAT(refusal_of_deepspeed(R"({"curriculum_learning": {"enabled": false, "params": {}}})"), "no error");
  EXPECT_THAT(refusal_of_deepspeed(R"({"gradient_cliping": 1})"), HasSubstr("did you mean \"gradient_clipping\"?"));
  EXPECT_THAT(refusal_of_deepspeed(R"({"zero_optimization": {"stag": 2}})"), HasSubstr("did you mean \"stage\"?"));
  EXPECT_THAT(refusal_of_deepspeed(R"({"optimizer": {"type": "OneBitAdam"}})"), HasSubstr("no such optimizer"));
  EXPECT_THAT(refusal_of_deepspeed(R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})"),
              HasSubstr("decouples the weight decay"));
  EXPECT_THAT(refusal_of_deepspeed("3"), HasSubstr("expected a file or an object"));
}

TEST(Deepspeed, IsAFileBesideTheConfig) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "ds.json", "{\n\"gradient_clipping\": 0.25}");
  write_file(folder / "c.yaml", "deepspeed: ds.json\n");
  const ResolvedConfig c = load_config(folder / "c.yaml");
  EXPECT_EQ(c.value.training.max_grad_norm, 0.25);
  EXPECT_EQ(c.origin.at("max_grad_norm"), (folder / "ds.json").string() + ":2 (gradient_clipping)");
  write_file(folder / "ds.json", "{\"gradient_clipping\": }");
  EXPECT_THAT(config_problems(folder / "c.yaml")[0].place, HasSubstr("ds.json:1"));
  write_file(folder / "c.yaml", "deepspeed: other.json\n");
  EXPECT_THAT(config_problems(folder / "c.yaml")[0].cause, HasSubstr("no such file \"other.json\""));
}

TEST(Fsdp, OffloadAndRecomputationAreOurs) {
  const auto config = [](const char* json) { return parse_config(json, "c.json"); };
  const ResolvedConfig words = config(R"({"fsdp": "full_shard auto_wrap offload"})");
  EXPECT_TRUE(words.value.training.optimizer_offload);
  EXPECT_THAT(words.notes, Contains(HasSubstr("nothing to shard")));
  const ResolvedConfig c = config(
      R"({"fsdp": true, "gradient_checkpointing": true, "fsdp_config": {"fsdp_offload_params": "true",
          "fsdp_activation_checkpointing": true, "fsdp_version": 2, "transformer_layer_cls_to_wrap": "QwenLayer"}})");
  EXPECT_TRUE(c.value.training.optimizer_offload);
  EXPECT_EQ(c.value.training.gradient_checkpointing.policy, "block");
  EXPECT_FALSE(
      config(R"({"fsdp": ["full_shard"], "fsdp_config": {"cpu_offload": false}})").value.training.optimizer_offload);
  EXPECT_THAT(config(R"({"fsdp_config": {"cpu_offload": true}})").notes, Contains(HasSubstr("no effect without fsdp")));
  EXPECT_EQ(
      config(R"({"fsdp": true, "fsdp_config": {"activation_checkpointing": true}, "gradient_checkpointing": "auto"})")
          .value.training.gradient_checkpointing.policy,
      "auto");
  EXPECT_THROW(config(R"({"fsdp": "full_shards"})"), Error);
  EXPECT_THROW(config(R"({"fsdp": 3})"), Error);
  EXPECT_THROW(config(R"({"fsdp": true, "fsdp_config": {"cpu_offlod": true}})"), Error);
  for (const char* off : {R"({"fsdp": ""})", R"({"fsdp": []})", R"({"fsdp": null, "fsdp_config": {}})"})
    EXPECT_THAT(config(off).inert, ::testing::IsEmpty()) << off;
}

// As `accelerate config` writes it for DeepSpeed.
constexpr const char* kAccelerateFile = R"(compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
  gradient_accumulation_steps: 16
  gradient_clipping: 0.7
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: fp16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
)";

TEST(Launchers, MembersThatBeginWithAnUnderscoreAreCommentsInTheirFilesToo) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "ds.json", R"({"_note": "of ours", "gradient_clipping": 0.5, "zero_optimization": {"_why": 2}})");
  write_file(folder / "acc.yaml", "_note: of ours\nmixed_precision: bf16\n");
  write_file(folder / "c.json", R"({"deepspeed": "ds.json", "accelerate_config": "acc.yaml"})");
  const ResolvedConfig c = load_config(folder / "c.json");
  EXPECT_EQ(c.value.training.max_grad_norm, 0.5);
  for (const auto& [key, entry] : c.inert.items()) EXPECT_EQ(key.find("_note"), key.npos) << key;
}

TEST(Accelerate, ItsDeepspeedPartAndPrecisionCount) {
  const qtrain::testing::TempFolder folder;
  write_file(folder / "acc.yaml", kAccelerateFile);
  write_file(folder / "c.json", R"({"accelerate_config": "acc.yaml"})");
  const ResolvedConfig c = load_config(folder / "c.json");
  EXPECT_EQ(c.value.training.gradient_accumulation_steps, 16);
  EXPECT_EQ(c.value.training.max_grad_norm, 0.7);
  EXPECT_TRUE(c.value.training.optimizer_offload);
  EXPECT_TRUE(c.value.training.fp16 && !c.value.training.bf16);
  EXPECT_EQ(c.origin.at("gradient_accumulation_steps"),
            (folder / "acc.yaml").string() + ":5 (deepspeed_config.gradient_accumulation_steps)");
  EXPECT_EQ(c.origin.at("fp16"), (folder / "acc.yaml").string() + ":16 (mixed_precision)");
  EXPECT_THAT(c.notes, Contains(HasSubstr("\"num_processes\" is 8 there and nproc 1 here")));
  write_file(folder / "c.json", R"({"accelerate_config": "acc.yaml", "bf16": true})");
  const ResolvedConfig bf16 = load_config(folder / "c.json");  // as in transformers, the arguments win
  EXPECT_TRUE(bf16.value.training.bf16 && !bf16.value.training.fp16);
  EXPECT_THAT(bf16.notes, Contains(HasSubstr("\"mixed_precision\" \"fp16\" has no effect")));
}

TEST(Accelerate, NamesOfTrlAndAFsdpPart) {
  EXPECT_THAT(parse_config("accelerate_config: zero3", "c.yaml").notes, Contains(HasSubstr("\"zero3\" has no effect")));
  const ResolvedConfig c = parse_config(
      "accelerate_config:\n  distributed_type: FSDP\n  fsdp_config:\n    fsdp_offload_params: true\n"
      "    fsdp_state_dict_type: FULL_STATE_DICT\n  mixed_precision: no\n  use_cpu: true\n",
      "c.yaml");
  EXPECT_TRUE(c.value.training.optimizer_offload);
  EXPECT_EQ(c.value.run.device, DeviceChoice::cpu);
  EXPECT_EQ(c.origin.at("device"), "c.yaml:7 (accelerate_config.use_cpu)");
  EXPECT_THROW(parse_config("accelerate_config:\n  mixed_precision: fp8\n", "c.yaml"), Error);
  EXPECT_THROW(parse_config("accelerate_config:\n  mixed_precison: bf16\n", "c.yaml"), Error);
}

}  // namespace
}  // namespace qtrain
