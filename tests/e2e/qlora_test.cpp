// Adapters on quantized base models, trained and used by the program.
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

const fs::path kQuantized = source_folder() / "tests/quant/goldens";

class Qlora : public ::testing::Test {
 protected:
  /// Trains on rows of ids with the small model of tests/quant, in 4 bits.
  Json config(const Json& changes = Json::object()) const {
    Json c = tiny_lora_run(folder_ / "out");
    c.update({{"model_name_or_path", (kQuantized / "bnb_model").string()},
              {"dataset_name", (folder_ / "rows.jsonl").string()},
              {"max_steps", 4},
              {"load_in_4bit", true},
              {"bnb_4bit_use_double_quant", true}});
    c.update(changes);
    return c;
  }
  void SetUp() override {
    std::vector<Json> rows;
    for (int i = 0; i < 8; ++i)
      rows.push_back({{"input_ids", {3 + i, 5 + i, 7 + i, 9 + i, 11 + i}}, {"labels", {3 + i, 5 + i, 7 + i, 9, 11}}});
    write_file(folder_ / "rows.jsonl", jsonl(rows));
  }
  std::vector<double> losses(const Json& c) const {
    fs::remove_all(folder_ / "out");
    train_ok(folder_.path(), c);
    return column(history(folder_ / "out", "loss"), "loss");
  }

  TempFolder folder_;
};

TEST_F(Qlora, AFolderIn4BitsGivesTheCurveOfOneThatIsQuantizedWhileLoading) {
  const std::vector<double> loading = losses(config());
  const std::vector<double> folder =
      losses(config({{"model_name_or_path", (kQuantized / "bnb_model_nf4").string()}, {"load_in_4bit", false}}));
  ASSERT_EQ(loading.size(), folder.size());
  ASSERT_GE(loading.size(), 2u);
  for (std::size_t i = 0; i < folder.size(); ++i) EXPECT_NEAR(loading[i], folder[i], 1e-5);
  EXPECT_NE(losses(config({{"load_in_4bit", false}}))[0], loading[0]);
}

TEST_F(Qlora, EveryPolicyAndDenseCopiesGiveTheSameCurve) {
  for (const bool dora : {false, true}) {
    const auto with = [&](const char* key, bool value) { return losses(config({{"use_dora", dora}, {key, value}})); };
    const std::vector<double> expected = with("gradient_checkpointing", false);
    EXPECT_EQ(with("gradient_checkpointing", true), expected) << "DoRA " << dora;
    EXPECT_EQ(with("dequantized_copy", true), expected) << "DoRA " << dora;
  }
}

TEST_F(Qlora, GoesOnFromACheckpointWithTheSameBits) {
  const Json whole = config({{"save_strategy", "steps"}, {"save_steps", 2}});
  train_ok(folder_.path(), whole);
  const std::string expected = bytes_of(folder_ / "out/adapter_model.safetensors");
  fs::remove_all(folder_ / "out/checkpoint-4");
  train_ok(folder_.path(), whole);
  EXPECT_EQ(bytes_of(folder_ / "out/adapter_model.safetensors"), expected);
  for (const char* change : {"bnb_4bit_quant_type=fp4", "load_in_4bit=false"}) {
    const Outcome other = qtrain({.words = {(folder_ / "config.json").string(), change, "max_steps=6"}});
    EXPECT_EQ(other.code, 2) << change;
    EXPECT_THAT(other.err, HasSubstr(std::string(change).substr(0, std::string(change).find('='))));
  }
}

TEST_F(Qlora, EstimateSaysWhatARunUses) {
  for (const Json& kind : std::vector<Json>{{{"load_in_4bit", true}},
                                            {{"dequantized_copy", true}},
                                            {{"use_dora", true}},
                                            {{"use_dora", true}, {"lora_target_modules", {"v_proj", "lm_head"}}},
                                            {{"load_in_4bit", false}, {"load_in_8bit", true}},
                                            {{"load_in_4bit", false}}}) {
    const Json c = config(kind);
    losses(c);
    const Json memory = read_json(folder_ / "out/train_results.json").at("memory");
    const std::string said = qtrain_ok({.words = {"estimate", (folder_ / "config.json").string(), "--json"}}).out;
    const Json estimated = parse_json(said, "estimate").at("memory");
    EXPECT_EQ(estimated, memory.at("planned")) << kind;
    EXPECT_EQ(estimated.at("total"), memory.at("allocated")) << kind;
    const bool quantized = c.value("load_in_4bit", false) || c.value("load_in_8bit", false);
    EXPECT_EQ(estimated.at("quantization_state") > 0, quantized) << kind;
  }
}

TEST_F(Qlora, ContradictionsAreSaidBeforeAnythingIsRead) {
  const auto refused = [&](const Json& changes) {
    Json c = config(changes);
    write_file(folder_ / "config.json", dump_json(c));
    const Outcome outcome = qtrain({.words = {(folder_ / "config.json").string()}});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refused({{"use_peft", false}}), HasSubstr("use_peft=true"));
  EXPECT_THAT(refused({{"load_in_8bit", true}}), HasSubstr("both true"));
  EXPECT_THAT(refused({{"bnb_4bit_blocksize", 65}}), HasSubstr("power of two"));
  EXPECT_THAT(refused({{"llm_int8_skip_modules", {".*up_proj"}}}), HasSubstr("not a module name"));
  const Json folder{{"model_name_or_path", (kQuantized / "bnb_model_nf4").string()}};
  Json eight = folder, full = folder;
  eight.update({{"load_in_4bit", false}, {"load_in_8bit", true}});
  full.update({{"load_in_4bit", false}, {"use_peft", false}});
  EXPECT_THAT(refused(eight), HasSubstr("quantized differently"));
  EXPECT_THAT(refused(full), HasSubstr("use_peft=true"));
}

TEST_F(Qlora, ValidateAndEvalTakeQuantizedBases) {
  losses(config());
  const std::string file = (folder_ / "config.json").string(), rows = (folder_ / "rows.jsonl").string();
  qtrain_ok({.words = {"validate", file}});
  const auto loss = [&](const std::string& more) {
    std::vector<std::string> words{"eval", file, "eval_dataset_name=" + rows, "--base", "--json"};
    if (!more.empty()) words.push_back(more);
    return parse_json(qtrain_ok({.words = words}).out, "eval").at("eval_loss").get<double>();
  };
  const double base = loss(""), dense = loss("load_in_4bit=false");
  EXPECT_NE(base, dense);
  const std::string serialized = (kQuantized / "bnb_model_nf4").string();
  EXPECT_NEAR(loss("model_name_or_path=" + serialized), base, 1e-5);
}

}  // namespace
}  // namespace qtrain::e2e
