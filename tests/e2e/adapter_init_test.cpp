// Adapters that start from the base weights (init_lora_weights).
#include <cmath>
#include <deque>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPrefix = "base_model.model.";

/// What an adapter adds to each weight, scale * B A, in a file.
void write_changes(const fs::path& adapter, const fs::path& file) {
  const Json lora = read_json(adapter / "adapter_config.json");
  const auto r = lora.at("r").get<std::size_t>();
  const double rank = static_cast<double>(r),
               scale = lora.at("lora_alpha").get<double>() / (lora.at("use_rslora") == true ? std::sqrt(rank) : rank);
  std::map<std::string, std::vector<double>> tensors = tensors_of(adapter);
  std::deque<std::vector<double>> products;
  NamedTensors changes;
  const std::string end = ".lora_A.weight";
  for (const auto& [name, a] : tensors) {
    if (!name.ends_with(end)) continue;
    const std::string module = name.substr(0, name.size() - end.size());
    const std::vector<double>& b = tensors.at(module + ".lora_B.weight");
    const std::string plain = module.substr(std::string(kPrefix).size());
    const std::size_t in = a.size() / r, out = b.size() / r;
    std::vector<double>& product = products.emplace_back(in * out);
    for (std::size_t i = 0; i < out; ++i)
      for (std::size_t k = 0; k < r; ++k)
        for (std::size_t j = 0; j < in; ++j) product[i * in + j] += scale * b[i * r + k] * a[k * in + j];
    changes.emplace_back(plain + ".weight",
                         view_of(std::span(product), {static_cast<std::int64_t>(out), static_cast<std::int64_t>(in)}));
  }
  write_safetensors(file, changes);
}

std::vector<std::string> curves() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGoldens / "curves"))
    if (fs::exists(entry.path() / "expected_changes.safetensors")) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Runs whose adapter PEFT initialized; e2e/curves_test.cpp compares their losses. Singular vectors are unique up to
/// their signs, so the products of the factors are compared.
class StartedAdapter : public ::testing::TestWithParam<std::string> {};

TEST_P(StartedAdapter, ChangesTheOriginalWeightsAsPeftDoes) {
  const fs::path curve = kGoldens / "curves" / GetParam();
  const TempFolder folder;
  qtrain_ok({.words = {"config.json", "output_dir=" + (folder / "out").string(), "threads=1"}, .folder = curve});
  write_changes(folder / "out", folder / "changes.safetensors");
  const double spread = read_json(curve / "expected.json").at("spread").at("final");
  EXPECT_LT(largest_difference_of_sums(curve / "expected_changes.safetensors", folder / "changes.safetensors"),
            8 * spread + 2e-6);
}

INSTANTIATE_TEST_SUITE_P(All, StartedAdapter, ::testing::ValuesIn(curves()), [](const auto& i) { return i.param; });

TEST(StartedAdapters, AreThere) {
  EXPECT_EQ(curves().size(), 5u);
}

Json started(const fs::path& output, const Json& init) {
  Json config = tiny_lora_run(output);
  config.update({{"init_lora_weights", init}, {"max_steps", 3}});
  if (init == "loftq") config["load_in_4bit"] = true;
  return config;
}

double loss_of(const Json& config, const std::vector<std::string>& more) {
  const TempFolder folder;
  write_file(folder / "config.json", dump_json(config));
  std::vector<std::string> words{"eval", (folder / "config.json").string(), "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return Json::parse(qtrain_ok({.words = words}).out).at("eval_loss");
}

Json evaluated(Json config) {
  config.update({{"eval_dataset_name", (kGoldens / "curves/llama_full/data.jsonl").string()},
                 {"eval_strategy", "steps"},
                 {"eval_steps", 3},
                 {"eval_on_start", true}});
  return config;
}

// The factors and what remains of the weights make up the original model, and the files belong to it: `eval` loads
// the original weights with the adapter.
TEST(StartedAdapters, HaveTheLossOfTheModelAtFirstAndTheTrainedOneInFiles) {
  for (const char* init : {"pissa", "pissa_niter_2", "olora"}) {
    const TempFolder folder;
    const Json config = evaluated(started(folder / "out", init));
    train_ok(folder.path(), config);
    const std::vector<double> losses = column(history(folder / "out", "eval_loss"), "eval_loss");
    ASSERT_EQ(losses.size(), 2u);
    EXPECT_NEAR(losses[0], loss_of(config, {"--base", "use_peft=false"}), 2e-6) << init;
    EXPECT_NEAR(losses[1], loss_of(config, {}), 2e-6) << init;
    EXPECT_GT(std::abs(losses[0] - losses[1]), 1e-3) << init;
    const Json saved = read_json(folder / "out/adapter_config.json");
    EXPECT_EQ(saved.at("r"), 2 * config.at("lora_r").get<int>());
    EXPECT_EQ(saved.at("lora_alpha"), 2 * config.at("lora_alpha").get<int>());
    EXPECT_EQ(saved.at("init_lora_weights"), true);
    qtrain_ok({.words = {"merge", "--model", config.at("model_name_or_path"), "--adapter", (folder / "out").string(),
                         "--output", (folder / "merged").string()}});
    Json merged = config;
    merged.update({{"model_name_or_path", (folder / "merged").string()}, {"use_peft", false}});
    EXPECT_NEAR(losses[1], loss_of(merged, {"--base"}), 2e-6) << init;
  }
}

TEST(StartedAdapters, OfOtherKindsSayHowTheyBegan) {
  for (const Json& init : {Json("gaussian"), Json(false), Json("loftq")}) {
    const TempFolder folder;
    const Json config = started(folder / "out", init);
    train_ok(folder.path(), config);
    const Json saved = read_json(folder / "out/adapter_config.json");
    EXPECT_EQ(saved.at("init_lora_weights"), init == "loftq" ? Json(true) : init);
    EXPECT_EQ(saved.at("r"), config.at("lora_r"));
  }
}

TEST(StartedAdapters, GoOnAsPlainOnes) {
  const TempFolder folder;
  train_ok(folder.path(), started(folder / "first", "pissa"));
  Json config = tiny_run(folder / "second");
  config.update({{"adapter_name_or_path", (folder / "first").string()}, {"learning_rate", 0.0}});
  train_ok(folder.path(), config);
  EXPECT_EQ(largest_difference(folder / "first", folder / "second"), 0);
  EXPECT_EQ(read_json(folder / "first/adapter_config.json"), read_json(folder / "second/adapter_config.json"));
  config["init_lora_weights"] = "pissa";
  write_file(folder / "config.json", dump_json(config));
  const Outcome outcome = qtrain({.words = {(folder / "config.json").string(), "--overwrite"}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("\"init_lora_weights\" disagrees with the adapter"));
}

TEST(StartedAdapters, RefuseWhatCannotBeSaved) {
  const std::pair<Json, const char*> cases[] = {
      {{{"lora_target_modules", {"q_proj", "embed_tokens"}}}, "is not supported for adapters of embed_tokens"},
      {{{"lora_target_modules", {"q_proj", "lm_head"}}}, "would change the embedding along with the tied head"},
      {{{"lora_r", 64}}, "needs a rank of at most"},
      {{{"model_name_or_path", (kGoldens / "qwen3_moe").string()}, {"lora_dropout", 0}},
       "is not supported for adapters of"},
      {{{"init_lora_weights", "loftq"}, {"load_in_4bit", false}}, "load_in_4bit is false"},
      {{{"init_lora_weights", "eva"}}, "got \"eva\""},
      {{{"init_lora_weights", "pissa_niter_"}}, "got \"pissa_niter_\""},
      {{{"model_name_or_path", (kGoldens / "curves/qlora_fp4_serialized/model").string()}},
       "needs unquantized weights"}};
  for (const auto& [changes, text] : cases) {
    const TempFolder folder;
    Json config = started(folder / "out", "pissa");
    config.update(changes);
    write_file(folder / "config.json", dump_json(config));
    const Outcome outcome = qtrain({.words = {(folder / "config.json").string()}});
    EXPECT_EQ(outcome.code, 2) << changes;
    EXPECT_THAT(outcome.err, HasSubstr(text)) << changes;
  }
}

}  // namespace
}  // namespace qtrain::e2e
