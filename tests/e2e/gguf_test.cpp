// import and export: GGUF files to model folders and back.
#include <fstream>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kGgufFiles = QTRAIN_SOURCE_DIR "/tests/convert/goldens";

TEST(Gguf, AModelGoesThereAndBackAndAnswersTheSame) {
  const TempFolder folder;
  const std::string model = (folder / "model").string(), file = (folder / "model.gguf").string(),
                    again = (folder / "again").string();
  qtrain_ok({.words = {"import", (kGgufFiles / "gguf/smollm.gguf").string(), "--output", model}});
  const Outcome out = qtrain_ok({.words = {"export", "--model", model, "--output", file, "--type", "f32"}});
  EXPECT_THAT(out.out, HasSubstr("tensors 11 F32"));
  qtrain_ok({.words = {"import", file, "--output", again}});
  EXPECT_EQ(read_text(folder / "again/model.safetensors"), read_text(folder / "model/model.safetensors"));
  const auto answer = [](const std::string& from) {
    return qtrain_ok({.words = {"generate", "--model", from, "--prompt", "The film of 1999", "--raw", "--greedy",
                                "--max_new_tokens", "8"}})
        .out;
  };
  EXPECT_EQ(answer(again), answer(model));
}

TEST(Gguf, AVocabularyBecomesATokenizer) {
  const TempFolder folder;
  const Outcome out = qtrain_ok(
      {.words = {"import", (kGgufFiles / "gguf_vocab/qwen2.gguf").string(), "--output", (folder / "qwen2").string()}});
  EXPECT_THAT(out.err, HasSubstr("only the tokenizer"));
  EXPECT_FALSE(std::filesystem::exists(folder / "qwen2/config.json"));
  qtrain_ok({.words = {"tokenize", "--model", (folder / "qwen2").string()}, .input = "\"Hello\"\n"});
}

TEST(Gguf, WhatCannotBeExportedIsSaidBeforeAnythingIsWritten) {
  const TempFolder folder;
  const std::string model = (folder / "model").string(), file = (folder / "out.gguf").string();
  qtrain_ok({.words = {"import", (kGgufFiles / "gguf/smollm.gguf").string(), "--output", model}});
  const std::vector<std::string> words{"export", "--model", model, "--output", file, "--type"};
  auto with_type = [&](const char* type) {
    auto all = words;
    all.emplace_back(type);
    return qtrain({.words = all});
  };
  EXPECT_EQ(with_type("q3_k").code, 2);
  auto config = read_text(folder / "model/config.json");
  config.insert(config.find('{') + 1, R"("quantization_config": {"quant_method": "gptq"},)");
  std::ofstream(folder / "model/config.json") << config;
  const Outcome quantized = with_type("q8_0");
  EXPECT_EQ(quantized.code, 3);
  EXPECT_THAT(quantized.err, HasSubstr("gptq"));
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace qtrain::e2e
