// Advice on configs that would run, but probably not as intended.
#include "report/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "train/setup/compute.h"

namespace qtrain {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> notes_on(const char* json) {
  return parse_config(json, "c.json").diagnostics.notes();
}

TEST(ConfigRemarks, ValuesThatGoTogetherWithoutEffect) {
  EXPECT_THAT(notes_on("{\"seed\": 1,\n\"use_tf32\": true, \"bf16\": true}"),
              Contains(HasSubstr("c.json:2 (use_tf32): \"tf32\" has no effect")));
  EXPECT_THAT(notes_on(R"({"tf32": true, "bf16": false})"), Not(Contains(HasSubstr("tf32"))));
  EXPECT_THAT(notes_on(R"({"group_by_length": true, "packing": true})"), Contains(HasSubstr("no use with packing")));
  EXPECT_THAT(notes_on(R"({"group_by_length": true})"), Not(Contains(HasSubstr("no use with packing"))));
  EXPECT_THAT(notes_on(R"({"dataloader_prefetch_factor": 4})"), Contains(HasSubstr("one thread prepares batches")));
  EXPECT_THAT(notes_on(R"({"dataloader_prefetch_factor": 4, "dataloader_num_workers": 2})"),
              Not(Contains(HasSubstr("one thread prepares batches"))));
  EXPECT_THAT(notes_on(R"({"max_steps": 10, "warmup_steps": 10})"), Contains(HasSubstr("never reaches its peak")));
  for (const std::string choice :
       {R"("load_best_model_at_end": true)", R"("save_strategy": "best")", R"("metric_for_best_model": "loss")"}) {
    const std::string evaluated = R"({"eval_split": 2, "eval_strategy": "steps", )" + choice;
    const auto told = Contains(HasSubstr("c.json:1: loss_type dft makes eval_loss"));
    EXPECT_THAT(notes_on((evaluated + R"(, "loss_type": "dft"})").c_str()), told) << choice;
    EXPECT_THAT(notes_on((evaluated + "}").c_str()), Not(told)) << choice;
  }
  EXPECT_THAT(notes_on(R"({"loss_type": "dft"})"), Not(Contains(HasSubstr("loss_type"))));
  EXPECT_THAT(notes_on(R"({"warmup_steps": 3, "warmup_ratio": 0.1})"),
              Contains(HasSubstr("\"warmup_ratio\" has no effect")));
  EXPECT_THAT(notes_on(R"({"lr_scheduler_type": "constant", "lr_scheduler_kwargs": {"num_cycles": 2}})"),
              Contains(HasSubstr("\"lr_scheduler_kwargs\" has no effect: the schedule is constant")));
  for (const char* key : {"tf32", "warmup_ratio"})
    EXPECT_TRUE(parse_config(R"({"tf32": true, "warmup_steps": 3, "warmup_ratio": 0.1})", "c")
                    .diagnostics.ignored()
                    .contains(key));
}

TEST(ConfigRemarks, EachHasThePlaceOfItsKey) {
  for (const char* json : {R"({"group_by_length": true, "packing": true})", R"({"dataloader_prefetch_factor": 4})",
                           R"({"max_steps": 10, "warmup_steps": 10})"})
    EXPECT_THAT(notes_on(json), ElementsAre(HasSubstr("dialect hf"), StartsWith("c.json:1"))) << json;
}

TEST(ConfigRemarks, KeysAboutGpusOnAProcessor) {
  const auto remarked = [](const char* json) {
    ResolvedConfig config = parse_config(json, "c.json");
    remark_on_device(config);
    return config;
  };
  const ResolvedConfig c = remarked(R"({"device": "cpu", "bf16": false, "tf32": true, "gradient_checkpointing": true,
                   "activation_offloading": true, "optimizer_offload": true, "weight_offload": true})");
  for (const char* key : {"tf32", "activation_offloading", "optimizer_offload", "weight_offload"}) {
    EXPECT_THAT(c.diagnostics.notes(),
                Contains(HasSubstr(std::string("\"") + key + "\" has no effect: it applies only to")))
        << key;
    EXPECT_TRUE(c.diagnostics.ignored().contains(key)) << key;
  }
  EXPECT_TRUE(remarked(R"({"device": "cpu", "fp16": true})").diagnostics.ignored().contains("fp16"));
  const ResolvedConfig both = remarked(R"({"device": "cpu", "tf32": true})");  // and 16-bit GEMMs
  EXPECT_EQ(std::ranges::count_if(both.diagnostics.notes(), [](const auto& n) { return n.find("\"tf32\"") != n.npos; }),
            1);
  EXPECT_TRUE(remarked(R"({"device": "cuda", "fp16": true})").diagnostics.ignored().empty());
}

TEST(ModelAdvice, Float16OfABfloat16Model) {
  ModelConfig model;
  model.dtype = DType::bf16;
  const auto config = [](const char* json) { return parse_config(json, "c").value; };
  EXPECT_THAT(model_advice(config(R"({"fp16": true})"), model), ElementsAre(HasSubstr("use bf16=true instead")));
  EXPECT_THAT(model_advice(config(R"({"bf16": true})"), model), IsEmpty());
  model.dtype = DType::f16;
  EXPECT_THAT(model_advice(config(R"({"fp16": true})"), model), IsEmpty());
}

TEST(ModelAdvice, ALearningRateFarFromWhatLoraWants) {
  const auto said = [](const std::string& keys) {
    return model_advice(parse_config("{" + keys + "}", "c").value, ModelConfig{});
  };
  EXPECT_THAT(said(R"("use_peft": true)"),
              ElementsAre(HasSubstr("learning_rate=2e-05 is low for LoRA: usual values are 1e-4 to 5e-4")));
  EXPECT_THAT(said(R"("use_peft": true, "learning_rate": 0.05)"), ElementsAre(HasSubstr("0.05 is high for LoRA")));
  EXPECT_THAT(said(R"("adapter_name_or_path": "a")"), ElementsAre(HasSubstr("is low for LoRA")));
  for (const char* fine : {R"("learning_rate": 2e-5)", R"("use_peft": true, "learning_rate": 2e-4)",
                           R"("use_peft": true, "loraplus_lr_ratio": 16)", R"("use_peft": true, "optim": "sgd")"})
    EXPECT_THAT(said(fine), IsEmpty()) << fine;
}

/// The advice on 1,000 rows of 1 to 100 tokens.
std::vector<std::string> advice_on(const char* json) {
  const ResolvedConfig config = parse_config(json, "c.json");
  DatasetStatistics rows;
  rows.source_rows = rows.rows = 1000;
  for (std::int32_t i = 0; i < 1000; ++i) rows.lengths.push_back(i % 100 + 1);
  const TrainingSection& t = config.value.training;
  const std::int64_t batches = (1000 + t.per_device_train_batch_size - 1) / t.per_device_train_batch_size;
  return data_advice(config, rows, make_step_plan(t, batches));
}

TEST(DataAdvice, LengthFarAboveTheRows) {
  EXPECT_THAT(advice_on(R"({"max_length": 8192})"),
              ElementsAre("max_length 8192 is much longer than the rows: 99 % of them have at most 99 tokens; "
                          "max_length=128 is enough"));
  EXPECT_THAT(advice_on(R"({"max_length": 190})"), IsEmpty());
  EXPECT_THAT(advice_on(R"({"max_length": 8192, "packing": true})"), IsEmpty());
  EXPECT_THAT(advice_on(R"({"max_length": null})"), IsEmpty());
}

TEST(RowsAdvice, WarnsOfRowsThatAreLost) {
  const TruncatedRow first{.place = "rows.jsonl:65", .length = 65};
  const struct {
    const char* name;
    std::int64_t truncated_rows, truncated_tokens, dropped, untargeted;
    const char* warning;  // "": none
  } cases[] = {
      {"whole rows", 0, 0, 0, 0, ""},
      {"many truncated rows", 360, 6'660, 0, 0,
       "max_length=64 truncates 360 of 1000 rows (36 %), which loses 12 % of the tokens; the first is rows.jsonl:65 "
       "with 65 tokens. 99 % of the rows have at most 99 tokens: raise max_length, or shorten the rows"},
      {"a few truncated rows", 50, 1'000, 0, 0, ""},
      {"a few rows with many tokens", 1, 10'000, 0, 0, "which loses 17 % of the tokens"},
      {"rows without a target left out", 0, 0, 1, 0, "left out 1 of 1000 rows"},
      {"rows kept without a target", 0, 0, 0, 51, "51 of 1000 prepared rows have no target"},
      {"a few rows kept without a target", 0, 0, 0, 50, ""}};
  for (const auto& c : cases) {
    DatasetStatistics rows;
    rows.source_rows = rows.rows = 1000;
    rows.tokens = 50'000;
    for (std::int32_t i = 0; i < 1000; ++i) rows.lengths.push_back(i % 100 + 1);
    rows.truncated_rows = c.truncated_rows;
    rows.truncated_tokens = c.truncated_tokens;
    if (c.truncated_rows > 0) rows.first_truncated = {first};
    rows.dropped_rows = c.dropped;
    rows.untargeted_rows = c.untargeted;
    DataSection data;
    data.max_length = 64;
    const std::vector<std::string> said = rows_advice(data, rows);
    if (*c.warning == '\0')
      EXPECT_THAT(said, IsEmpty()) << c.name;
    else
      EXPECT_THAT(said, ElementsAre(HasSubstr(c.warning))) << c.name;
  }
}

TEST(DataAdvice, StepsThatDoNotMatchTheRows) {  // 125 updates per epoch
  const auto said = [](const std::string& keys) { return advice_on(("{\"max_length\": 128, " + keys + "}").c_str()); };
  EXPECT_THAT(said(R"("max_steps": 500, "num_train_epochs": 2)"),
              ElementsAre("max_steps=500 trains for 4.00 epochs on these rows; num_train_epochs=2 has no effect"));
  EXPECT_THAT(said(R"("max_steps": 250, "num_train_epochs": 2)"), IsEmpty());
  EXPECT_THAT(said(R"("max_steps": 25)"), ElementsAre("max_steps=25 is only 0.20 epochs, so some rows are never used"));
  EXPECT_THAT(said(R"("gradient_accumulation_steps": 200)"),
              ElementsAre(HasSubstr("an epoch has only 125 micro-batches")));
  EXPECT_THAT(said(R"("warmup_steps": 400)"), ElementsAre(HasSubstr("never reaches its peak")));
  EXPECT_THAT(said(R"("logging_steps": 1000)"), ElementsAre(HasSubstr("no loss is logged")));
  EXPECT_THAT(said(R"("save_steps": 1000)"), ElementsAre(HasSubstr("a checkpoint is saved only at the end")));
  EXPECT_THAT(said(R"("eval_strategy": "steps", "eval_steps": 400, "eval_split": 0.1)"),
              ElementsAre(HasSubstr("it is evaluated only at the end")));
  EXPECT_THAT(said(R"("seed": 1)"), IsEmpty());  // defaults that exceed the run are not the user's mistake
}

}  // namespace
}  // namespace qtrain
