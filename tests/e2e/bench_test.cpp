#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

TEST(Bench, CountsBytesAndFlopsOfEveryOp) {
  const TempFolder folder;
  const fs::path file = folder / "bench.json";
  const Outcome outcome = qtrain_ok({.words = {"bench", "--device", "cpu", "--small", "--json", file.string()}});
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("of copy"));
  std::map<std::string, Json> results;
  const Json report = read_json(file);
  for (const Json& r : report.at("results")) results[r.at("name")] = r;
  for (const char* name :
       {"copy/4096", "add/16x32", "rms_norm/16x32", "rms_norm_grad/16x32", "qk_norm_rope/16x(16+8)x128",
        "cross_entropy/4x4748", "adamw/1000", "adamw_8bit/1000", "lion_8bit/1000", "adafactor/125x8",
        "muon_apply/125x8", "dequantize4/96x32", "quantize4/448x128", "gemm4/8x96x32", "gemm_rows8/1x96x32",
        "attention_grad/hd128/32 packed", "gemm/llama-3.1-8b/down/16x128x448/dw",
        "decode/qwen3-0.6b/head/1x4748x32/bfloat16", "tokenize/20"})
    EXPECT_TRUE(results.contains(name)) << name;
  EXPECT_FALSE(results.contains("add_rms_norm/16x32")) << "no stage of a block does both at once";
  // The bytes of three float32 tensors, and the FLOPs of two GEMMs over the visible half of 32 x 32 scores of 16 heads.
  EXPECT_EQ(results.at("swiglu/16x96").at("bytes"), 3 * 16 * 96 * 4);
  EXPECT_EQ(results.at("attention/hd64/32").at("flops"), 2 * 2 * (32 * 33 / 2) * 64 * 16);
  EXPECT_EQ(results.at("copy/4096").at("share_of_copy"), 1.0);
  for (const auto& [name, r] : results) EXPECT_GT(r.at("seconds").get<double>(), 0) << name;
  EXPECT_GT(results.at("read_jsonl/20").at("text_bytes_per_second").get<double>(), 0);
}

TEST(Bench, TakesTheTypeOfActivationsAndWeights) {
  const TempFolder folder;
  const fs::path file = folder / "bench.json";
  qtrain_ok({.words = {"bench", "swiglu/16x96", "--device", "cpu", "--small", "--dtype", "bfloat16", "--json",
                       file.string()}});
  const Json report = read_json(file);
  EXPECT_EQ(report.at("dtype"), "bfloat16");
  EXPECT_EQ(report.at("results").back().at("bytes"), 3 * 16 * 96 * 2);
}

TEST(Bench, MeasuresWhatTheFilterNames) {
  const Outcome outcome = qtrain_ok({.words = {"bench", "swiglu", "--device", "cpu", "--small"}});
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("swiglu_grad/"));
  EXPECT_THAT(outcome.out, ::testing::Not(::testing::HasSubstr("adamw")));
}

TEST(Bench, NamesSomeCasesWhereTheFilterMatchesNone) {
  const TempFolder folder;
  const fs::path file = folder / "bench.json";
  const Outcome outcome =
      qtrain({.words = {"bench", "swigloo", "--device", "cpu", "--small", "--json", file.string()}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("\"swigloo\""));
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("add/16x32"));
  EXPECT_FALSE(fs::exists(file));
}

TEST(Bench, TheLimitsMayBeAllThatIsMeasured) {
  const Outcome outcome = qtrain_ok({.words = {"bench", "copy/", "--device", "cpu", "--small"}});
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("copy/4096"));
  EXPECT_THAT(outcome.out, ::testing::Not(::testing::HasSubstr("adamw")));
}

TEST(BenchStep, MeasuresACaseWithoutAModel) {
  const TempFolder folder;
  const fs::path file = folder / "step.json";
  qtrain_ok({.words = {"bench", "step", "qwen3-0.6b-qlora", "--device", "cpu", "--small", "--json", file.string()}});
  const Json result = read_json(file);
  EXPECT_EQ(result.at("case"), "qwen3-0.6b-qlora");
  EXPECT_EQ(result.at("tokens"), 8 * 32);
  std::map<std::string, Json> groups;
  for (const Json& g : result.at("groups")) groups[g.at("group")] = g;
  for (const char* name : {"gemm", "adapter gemms", "attention forward", "attention backward", "rope backward",
                           "other element-wise", "cross-entropy", "update"})
    EXPECT_GT(groups[name].value("ms", 0.0), 0) << name;
  EXPECT_EQ(groups["gemm"].at("predicted_ms"), Json()) << "predictions are not for tiny shapes";
}

TEST(BenchStep, RefusesWhatItDoesNotKnow) {
  const struct {
    std::vector<std::string> words;
    const char* said;
  } cases[] = {{{"bench", "step", "qwen9"}, "qwen3-0.6b-qlora"},
               {{"bench", "swiglu", "qwen3-0.6b"}, "qtrain bench step"},
               {{"bench", "swiglu", "bf16=true"}, "qtrain bench step"}};
  for (const auto& c : cases) {
    const Outcome outcome = qtrain({.words = c.words});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(c.said));
  }
}

}  // namespace
}  // namespace qtrain::e2e
