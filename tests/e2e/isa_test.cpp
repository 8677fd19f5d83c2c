// Whole runs on each instruction set of this CPU: results that must not depend on it, and answers that must not depend
// on other answers in the batch.
#include <cstdlib>

#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

/// An instruction set, and its name in `qtrain doctor`.
struct Isa {
  const char *name, *part;
};
constexpr Isa kIsas[] = {{"avx2", "AVX2 + FMA"},
                         {"avx512", "AVX-512"},
                         {"avx512_bf16", "bfloat16 dot products"},
                         {"neon", "NEON"},
                         {"neon_bf16", "NEON bfloat16 dot products"}};

bool is_here(const Isa& isa) {
  const Outcome doctor = qtrain_ok({.words = {"doctor", "--json"}});
  const Json parts = parse_json(doctor.out, "doctor");
  return parts.contains(isa.part) && parts.at(isa.part).at("value").get<std::string>().starts_with("yes");
}

class EachIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!is_here(GetParam())) GTEST_SKIP() << "this processor has no " << GetParam().name;
    ::setenv("QTRAIN_CPU_ISA", GetParam().name, 1);
  }
  void TearDown() override { ::unsetenv("QTRAIN_CPU_ISA"); }
  /// A golden model whose tokens are letters.
  std::string model(const std::string& name) {
    const fs::path to = folder_ / name;
    fs::create_directories(to);
    for (const char* file : {"config.json", "model.safetensors"}) fs::copy_file(kGoldens / name / file, to / file);
    write_letter_tokenizer(to, read_json(to / "config.json").at("vocab_size"));
    return to.string();
  }
  TempFolder folder_;
};

/// How answers are generated.
struct Answering {
  const char* model;
  std::vector<std::string> flags;
  const char* gemms;  ///< what the log says about GEMMs on a CPU with bfloat16 dot products
};

// Samples at a temperature at which the last bit of a logit sometimes decides. Prompts have 1 to 25 tokens, so that
// long ones are processed while others are answered, and there are more prompts than rows, so that neighbors change.
TEST_P(EachIsa, AnswersDoNotDependOnTheBatch) {
  std::vector<Json> prompts;
  for (int i = 0; i < 13; ++i)
    prompts.push_back({{"prompt", letters(std::vector<int>(1 + i * 5 % 13 * (1 + i % 2), 10 + i))}});
  write_file(folder_ / "prompts.jsonl", jsonl(prompts));
  const std::string adapter = (kGoldens / "lora_llama_all/adapter").string();
  const Answering kinds[] = {{"qwen3_gqa7_tied", {}, "float32"},
                             {"qwen3_gqa7_tied", {"--dtype", "bfloat16"}, "bfloat16"},
                             {"llama_gqa3_tied", {"--adapter", adapter}, "float32"},
                             {"llama_gqa3_tied", {"--adapter", adapter, "--dtype", "bfloat16"}, "bfloat16"},
                             {"llama_gqa3_tied", {"--adapter", adapter, "--load_in_4bit"}, "float32"},
                             {"llama_gqa3_tied", {"--load_in_4bit", "--dtype", "bfloat16"}, "bfloat16"}};
  for (const Answering& kind : kinds) {
    const fs::path folder = folder_ / kind.model;
    std::vector<std::string> words{"generate",
                                   "--model",
                                   fs::exists(folder) ? folder.string() : model(kind.model),
                                   "--raw",
                                   "--temperature",
                                   "0.9",
                                   "--top_k",
                                   "0",
                                   "--max_new_tokens",
                                   "20",
                                   "--input",
                                   (folder_ / "prompts.jsonl").string()};
    words.insert(words.end(), kind.flags.begin(), kind.flags.end());
    std::string alone;
    for (const char* batch : {"1", "3", "8", "13"}) {
      std::vector<std::string> with = words;
      with.insert(with.end(), {"--batch_size", batch});
      const Outcome answers = qtrain_ok({.words = with});
      if (alone.empty()) alone = answers.out;
      EXPECT_EQ(answers.out, alone) << kind.model << " " << ::testing::PrintToString(kind.flags) << " batch " << batch;
      const bool bf16 = std::string(GetParam().name).ends_with("_bf16");
      EXPECT_THAT(answers.err, HasSubstr(std::string("GEMMs in ") + (bf16 ? kind.gemms : "float32")));
    }
  }
}

// float32 sums have the same order on all of them.
TEST_P(EachIsa, ARunInFloat32HasTheBitsOfTheNarrowest) {
  for (const char* curve : {"llama_full", "cosine"}) {
    std::vector<std::string> results;
    for (const char* isa : {GetParam().name, is_here(kIsas[0]) ? "avx2" : "neon"}) {
      ::setenv("QTRAIN_CPU_ISA", isa, 1);
      // A separate folder for each, because a second run in the same folder would find it finished.
      const fs::path out = folder_ / curve / std::to_string(results.size());
      qtrain_ok(
          {.words = {"config.json", "output_dir=" + out.string(), "threads=2"}, .folder = kGoldens / "curves" / curve});
      for (const auto& entry : fs::directory_iterator(out))
        if (entry.path().extension() == ".safetensors") results.push_back(bytes_of(entry.path()));
    }
    ASSERT_EQ(results.size(), 2u);
    EXPECT_TRUE(results[0] == results[1]) << curve;
  }
}

TEST_P(EachIsa, ARunInBfloat16LearnsAsOneInFloat32) {
  std::vector<std::vector<double>> losses;
  for (const char* compute : {"float32", "bfloat16"}) {
    Json config = tiny_lora_run(folder_ / compute);
    config.update({{"compute_dtype", compute}, {"max_steps", 12}, {"learning_rate", 0.01}});
    train_ok(folder_.path(), config);
    losses.push_back(column(history(folder_ / compute, "loss"), "loss"));
  }
  ASSERT_EQ(losses[0].size(), losses[1].size());
  EXPECT_LT(losses[0].back(), 0.95 * losses[0].front());
  // Operands of 8 bits, sums in float32: errors of 2^-9 per factor average out over the tokens of a batch.
  for (std::size_t i = 0; i < losses[0].size(); ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 0.01 * losses[0][i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Here, EachIsa, ::testing::ValuesIn(kIsas),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace qtrain::e2e
