#include "convert/inspect.h"

#include <gmock/gmock.h>

#include "convert/gguf/import.h"
#include "core/formats/safetensors.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kGoldens = QTRAIN_SOURCE_DIR "/tests";

void write_adapter(const std::filesystem::path& folder) {
  write_file(folder / "adapter_config.json",
             R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "auto_mapping": null})");
  const std::vector<float> values(12, 1.0f);
  const auto a = view_of(std::span(values).first(8), {4, 2}), b = view_of(std::span(values).first(4), {1, 4});
  write_safetensors(folder / "adapter_model.safetensors", NamedTensors{{"x.lora_A.weight", a}, {"x.lora_B.weight", b}});
}

TEST(Inspect, AGgufFile) {
  const auto report = inspect_path(kGoldens / "convert/goldens/gguf/smollm.gguf");
  EXPECT_EQ(report["kind"], "GGUF file");
  EXPECT_EQ(report["model"]["architecture"], "llama");
  EXPECT_EQ(report["weights"]["tensors"], 11);
  EXPECT_EQ(report["weights"]["dtypes"]["Q4_1"]["tensors"], 6);
  EXPECT_EQ(report["metadata"]["llama.attention.head_count_kv"], 2);
  EXPECT_EQ(report["metadata"]["tokenizer.ggml.tokens"], "320 entries");
  EXPECT_FALSE(report.contains("tensors"));
}

TEST(Inspect, AModelFolder) {
  TempFolder folder;
  import_gguf({.gguf = kGoldens / "convert/goldens/gguf/smollm.gguf", .output = folder.path()});
  const auto report = inspect_path(folder.path(), TensorList::include);
  EXPECT_EQ(report["kind"], "model folder");
  EXPECT_EQ(report["model"]["num_key_value_heads"], 2);
  // 320 x 32 embeddings; q, o 32 x 32; k, v 16 x 32; three 64 x 32; three norms of 32
  EXPECT_EQ(report["weights"]["parameters"], 320 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32 + 3 * 32);
  EXPECT_EQ(report["weights"]["bytes"], 4 * report["weights"]["parameters"].get<int>());
  EXPECT_EQ(report["tokenizer"]["vocab_size"], 320);
  EXPECT_EQ(report["tokenizer"]["chat_template"], "tokenizer_config.json");
  EXPECT_EQ(report["tensors"].size(), 11u);
  const auto text = inspect_text(report);
  EXPECT_THAT(text, HasSubstr(": model folder\n"));
  EXPECT_THAT(text, HasSubstr("19,552 parameters in 11 tensors, 78.2 kB; 11 float32"));
  EXPECT_THAT(text, HasSubstr("float32 [16, 32]"));
}

TEST(Inspect, AnAdapter) {
  TempFolder folder;
  write_adapter(folder.path());
  const auto report = inspect_path(folder.path());
  EXPECT_EQ(report["kind"], "adapter");
  EXPECT_EQ(dump_json(report["adapter"]),
            R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]})");
  EXPECT_EQ(report["weights"]["parameters"], 12);
}

TEST(Inspect, ARunFolderAndItsCheckpoint) {
  TempFolder folder;
  const auto checkpoint = folder / "checkpoint-100";
  for (const auto* name : {"checkpoint-9", "checkpoint-100", "checkpoint-12.tmp", "checkpoint-x"})
    std::filesystem::create_directory(folder / name);
  write_adapter(folder.path());
  write_adapter(checkpoint);
  write_file(checkpoint / "trainer_state.json",
             R"({"global_step": 100, "max_steps": 300, "epoch": 1.5, "log_history": [{"step": 1}, {"step": 100}]})");
  const float moment = 0;
  write_safetensors(checkpoint / "optimizer.safetensors", NamedTensors{{"m", view_of(std::span(&moment, 1), {1})}});

  const auto run = inspect_path(folder.path());
  EXPECT_EQ(run["kind"], "run folder");
  EXPECT_EQ(dump_json(run["checkpoints"]), R"(["checkpoint-9", "checkpoint-100"])");
  const auto report = inspect_path(checkpoint);
  EXPECT_EQ(report["kind"], "checkpoint");
  EXPECT_EQ(report["checkpoint"]["global_step"], 100);
  EXPECT_EQ(report["checkpoint"]["last_log"]["step"], 100);
  const std::string text = inspect_text(report), last = text.substr(text.find("last_log"));
  EXPECT_THAT(last.substr(0, last.find('\n')), AllOf(HasSubstr("step 100"), ::testing::Not(HasSubstr("{"))));
  EXPECT_EQ(report["adapter"]["r"], 4);
  EXPECT_EQ(report["weights"]["parameters"], 12);
  EXPECT_EQ(report["state_files"]["optimizer.safetensors"]["parameters"], 1);
}

TEST(Inspect, ASafetensorsFileWithTensorsWeCannotUse) {
  TempFolder folder;
  std::string file("\x37\0\0\0\0\0\0\0", 8);
  file += R"({"a":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[0,2]}})";
  file[0] = static_cast<char>(file.size() - 8);
  write_file(folder / "x.safetensors", file + "12");
  EXPECT_THAT(inspect_text(inspect_path(folder / "x.safetensors")), HasSubstr("F8_E5M2"));
}

TEST(Inspect, WhatItDoesNotKnow) {
  TempFolder folder;
  write_file(folder / "x.txt", "text");
  EXPECT_THAT(error_of([&] { inspect_path(folder.path()); }).what(),
              HasSubstr("is not a model, adapter or checkpoint"));
  EXPECT_THAT(error_of([&] { inspect_path(folder / "x.txt"); }).what(), HasSubstr("is neither a folder nor"));
  EXPECT_THAT(error_of([&] { inspect_path(folder / "none"); }).what(), HasSubstr("no such file or folder"));
  EXPECT_THAT(error_of([&] { inspect_path(folder / "none.gguf"); }).what(), HasSubstr("no such file"));
  write_file(folder / "adapter_config.json", "[]");
  EXPECT_THAT(error_of([&] { inspect_path(folder.path()); }).what(), HasSubstr("is not a JSON object"));
}

}  // namespace
}  // namespace qtrain
