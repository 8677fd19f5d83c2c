// Adapters merged into the weights of their model.
#include <cmath>

#include "core/formats/safetensors.h"
#include "core/half.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"
#include "tests/golden/sums.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

const fs::path kModel = kGoldens / "llama_gqa3_tied", kAdapter = kGoldens / "lora_llama_all/adapter";  // r 4, alpha 8

// weight * alpha/r * B A of one module, in f64.
std::vector<double> delta(const fs::path& adapter, const std::string& module, double weight) {
  const auto tensors = tensors_of(adapter);
  const std::string name = "base_model.model." + module;
  const auto a = tensors.find(name + ".lora_A.weight"), b = tensors.find(name + ".lora_B.weight");
  if (a == tensors.end()) return {};
  const std::size_t rank = 4, in = a->second.size() / rank, out = b->second.size() / rank;
  std::vector<double> d(in * out, 0.0);
  for (std::size_t o = 0; o < out; ++o)
    for (std::size_t r = 0; r < rank; ++r)
      for (std::size_t i = 0; i < in; ++i)
        d[o * in + i] += weight * 2 * b->second[o * rank + r] * a->second[r * in + i];
  return d;
}

struct Share {
  fs::path adapter;
  double weight = 1;
};
// Checks that every tensor of `merged` is that of `model` plus all deltas, to half a unit of its type (and the rounding
// of f32 sums of 4 products).
void expect_merged(const fs::path& merged, const fs::path& model, const std::vector<Share>& shares, double half_unit) {
  const auto before = tensors_of(model), after = tensors_of(merged);
  ASSERT_EQ(before.size(), after.size());
  int changed = 0;
  for (const auto& [name, values] : before) {
    std::vector<double> expected = values;
    for (const Share& s : shares) {
      const auto d = delta(s.adapter, name.substr(0, name.rfind('.')), s.weight);
      for (std::size_t i = 0; i < d.size(); ++i) expected[i] += d[i];
    }
    changed += expected != values;
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(after.at(name)[i], expected[i], half_unit * std::abs(expected[i]) + 3e-7) << name << " " << i;
  }
  EXPECT_EQ(changed, 14) << "seven linear layers in each of two blocks";
}

TEST(Merge, AddsTheAdapterToEveryWeightItChanges) {
  const TempFolder folder;
  const fs::path out = folder / "merged";
  qtrain_ok({.words = {"merge", "--model", kModel, "--adapter", kAdapter, "--output", out}});
  expect_merged(out, kModel, {{kAdapter}}, 0x1p-24);
  EXPECT_EQ(bytes_of(out / "config.json"), bytes_of(kModel / "config.json"));
}

// Expected values are PEFT's merge_and_unload in float64, for one parameter and for both, with rank and alpha patterns.
TEST(Merge, PutsAdaptersOfExpertsAndRoutersWherePeftDoes) {
  for (const char* name : {"lora_qwen3_moe_patterns", "lora_qwen3_moe_gate_up", "lora_mixtral_patterns"}) {
    SCOPED_TRACE(name);
    const TempFolder folder;
    const fs::path out = folder / "merged", golden = kGoldens / name;
    qtrain_ok({.words = {"merge", "--model", golden, "--adapter", golden / "adapter", "--output", out}});
    const auto before = tensors_of(golden), after = tensors_of(out);
    ASSERT_EQ(before.size(), after.size());
    const SafetensorsReader expected(golden / "expected_merged.safetensors");
    EXPECT_GE(expected.tensors().size(), 20u);
    for (const auto& [weight, values] : after) {
      if (!expected.contains(weight)) {
        EXPECT_EQ(values, before.at(weight)) << weight;
        continue;
      }
      const auto truth = expected.at(weight).span<double>();
      const std::vector<double> sums = qtrain::testing::signed_sums(values);
      ASSERT_EQ(sums.size(), truth.size()) << weight;
      // Elements are float32 sums of up to 5 products of order one; the largest observed difference of sums is 1.6e-6.
      for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i], truth[i], 2.5e-6) << weight << " " << i;
    }
  }
}

TEST(Merge, RefusesAdaptersOfExpertsThatDoNotFit) {
  const TempFolder folder;
  const fs::path golden = kGoldens / "lora_qwen3_moe_patterns", adapter = folder / "adapter";
  const auto refused = [&](const char* key, const Json& value) {
    fs::remove_all(adapter);
    fs::copy(golden / "adapter", adapter, fs::copy_options::recursive);
    Json config = read_json(adapter / "adapter_config.json");
    config[key] = value;
    write_file(adapter / "adapter_config.json", config.dump());
    const Outcome outcome =
        qtrain({.words = {"merge", "--model", golden, "--adapter", adapter, "--output", folder / "merged"}});
    EXPECT_EQ(outcome.code, 3) << key;
    EXPECT_FALSE(fs::exists(folder / "merged"));
    return outcome.err;
  };
  EXPECT_THAT(refused("use_dora", true), HasSubstr("PEFT refuses it too"));
  EXPECT_THAT(refused("r", 3), HasSubstr("of rank 3"));
  EXPECT_THAT(refused("target_parameters", Json{"gate_up_proj", "gate.weight"}), HasSubstr("gate_up_proj"));
}

// The file has factors that adapter_config.json does not name.
TEST(Merge, LeavesOutAdaptersOfExpertsThatAreNotNamed) {
  const TempFolder folder;
  const fs::path golden = kGoldens / "lora_qwen3_moe_patterns", adapter = folder / "adapter";
  fs::copy(golden / "adapter", adapter, fs::copy_options::recursive);
  Json config = read_json(adapter / "adapter_config.json");
  config["target_parameters"] = {"gate.weight"};
  write_file(adapter / "adapter_config.json", config.dump());
  const Outcome outcome = qtrain_ok({.words = {"merge", "--model", golden, "--adapter", adapter, "--output",
                                               folder / "merged", "--data", kGoldens / "curves/cosine/data.jsonl"}});
  EXPECT_THAT(outcome.err, HasSubstr("not part of the model"));
  const auto before = tensors_of(golden), after = tensors_of(folder / "merged");
  for (const auto& [name, values] : before)
    EXPECT_TRUE(name.find(".experts.") == name.npos || after.at(name) == values) << name;
  const std::string router = "model.layers.0.mlp.gate.weight";
  EXPECT_NE(after.at(router), before.at(router));
}

TEST(Merge, RoundsOnceToTheTypeOfTheWeights) {
  const TempFolder folder;
  const fs::path out = folder / "merged", model = kGoldens / "llama_f16_sharded";
  qtrain_ok({.words = {"merge", "--model", model, "--adapter", kAdapter, "--output", out}});
  EXPECT_EQ(SafetensorsReader(out).at("model.norm.weight").dtype, DType::f16);
  expect_merged(out, model, {{kAdapter}}, 0x1p-11);
}

TEST(Merge, AddsUpSeveralAdaptersByWeight) {
  const TempFolder folder;
  const fs::path out = folder / "merged", second = folder / "adapter";
  Json run = tiny_lora_run(second);
  run["max_steps"] = 3;
  train_ok(folder.path(), run);
  qtrain_ok({.words = {"merge", "--model", kModel, "--adapter", kAdapter, "--adapter", second, "--weights", "0.75,-0.5",
                       "--output", out}});
  expect_merged(out, kModel, {{kAdapter, 0.75}, {second, -0.5}}, 0x1p-24);
}

/// The golden model in bfloat16, and an adapter that changes it only slightly.
struct SmallUpdate {
  explicit SmallUpdate(const TempFolder& folder) : model(folder / "bf16"), adapter(folder / "small") {
    qtrain_ok({.words = {"merge", "--model", kModel, "--adapter", kAdapter, "--weights", "0", "--dtype", "bfloat16",
                         "--output", model}});
    Json run = tiny_lora_run(adapter);
    run.update({{"model_name_or_path", model.string()}, {"max_steps", 4}, {"learning_rate", 1e-3}});
    train_ok(folder.path(), run);
  }
  fs::path model, adapter;
};

// The share of the update that the merged weights have lost, computed from the files.
double lost_share(const fs::path& merged, const fs::path& exact, const fs::path& model) {
  const auto rounded = tensors_of(merged), whole = tensors_of(exact), before = tensors_of(model);
  double lost = 0, update = 0;
  for (const auto& [name, values] : whole)
    for (std::size_t i = 0; i < values.size(); ++i) {
      lost += std::pow(rounded.at(name)[i] - values[i], 2);
      update += std::pow(values[i] - before.at(name)[i], 2);
    }
  return std::sqrt(lost / update);
}

TEST(Merge, WritesTheTypeThatIsAskedForAndSaysWhatRoundingLoses) {
  const TempFolder folder;
  const SmallUpdate small(folder);
  const auto merged = [&](const char* dtype) {
    const fs::path to = folder / dtype;
    const Outcome outcome = qtrain_ok({.words = {"merge", "--model", small.model, "--adapter", small.adapter, "--dtype",
                                                 dtype, "--output", to, "--json"}});
    return std::pair{parse_json(outcome.out, "merge").at("rounding").get<double>(), outcome.err};
  };
  const auto [none, quiet] = merged("float32");
  const auto [much, warning] = merged("bfloat16");
  EXPECT_EQ(SafetensorsReader(folder / "float32").at("model.norm.weight").dtype, DType::f32);
  EXPECT_EQ(SafetensorsReader(folder / "bfloat16").at("model.norm.weight").dtype, DType::bf16);
  const Json config = read_json(folder / "float32/config.json");
  EXPECT_EQ(config.at(config.contains("dtype") ? "dtype" : "torch_dtype"), "float32");
  EXPECT_EQ(none, 0);
  EXPECT_GT(much, 0.1) << "the update is small beside the last bits of the weights";
  EXPECT_NEAR(much, lost_share(folder / "bfloat16", folder / "float32", small.model), 1e-4 * much);
  EXPECT_THAT(warning, HasSubstr("--dtype float32"));
  EXPECT_EQ(quiet.find("--dtype float32"), quiet.npos);
  expect_merged(folder / "float32", small.model, {{small.adapter}}, 0x1p-24);
}

TEST(Merge, KeepsTheTypeOfTheModelUnlessAsked) {
  const TempFolder folder;
  const SmallUpdate small(folder);
  qtrain_ok({.words = {"merge", "--model", small.model, "--adapter", small.adapter, "--output", folder / "merged"}});
  EXPECT_EQ(SafetensorsReader(folder / "merged").at("model.norm.weight").dtype, DType::bf16);
  EXPECT_EQ(bytes_of(folder / "merged/config.json"), bytes_of(small.model / "config.json"));
}

TEST(Merge, TheMergedModelHasTheLossOfTheAdapter) {
  const TempFolder folder;
  const std::string said =
      qtrain_ok({.words = {"merge", "--model", kModel, "--adapter", kAdapter, "--output", folder / "merged", "--data",
                           kGoldens / "curves/cosine/data.jsonl", "--json"}})
          .out;
  const Json losses = parse_json(said, "merge");
  const double merged = losses.at("merged_eval_loss"), apart = losses.at("adapter_eval_loss");
  EXPECT_NEAR(merged, apart, 2e-6) << "products are added up in another order";
  qtrain_ok(
      {.words = {"merge", "--model", kModel, "--adapter", kAdapter, "--weights", "0", "--output", folder / "base"}});
  EXPECT_EQ(largest_difference(folder / "base", kModel), 0);
}

/// A PEFT adapter that changes embedding, head, norms or the lengths of rows, and whether head and embedding are one
/// weight afterwards.
struct OuterAdapter {
  const char *model, *name;
  bool tied;
};
constexpr OuterAdapter kOuterAdapters[] = {
    {"qwen3_hd8", "lora_saved_modules", false},         {"qwen3_hd8", "lora_embeddings", false},
    {"qwen3_gqa7_tied", "lora_saved_head_tied", false}, {"qwen3_gqa7_tied", "lora_saved_embedding_tied", true},
    {"qwen3_gqa7_tied", "lora_embedding_tied", false},  {"llama_gqa3_tied", "lora_dora_llama", true},
    {"qwen3_hd8", "lora_dora_qwen3_head", false}};

TEST(Merge, OfWholeModulesEmbeddingsAndMagnitudesKeepsTheLoss) {
  for (const OuterAdapter& a : kOuterAdapters) {
    const TempFolder folder;
    const std::string said =
        qtrain_ok({.words = {"merge", "--model", kGoldens / a.model, "--adapter", kGoldens / a.name / "adapter",
                             "--output", folder / "merged", "--data", kGoldens / "curves/cosine/data.jsonl", "--json"}})
            .out;
    const Json losses = parse_json(said, "merge");
    EXPECT_NEAR(losses.at("merged_eval_loss"), losses.at("adapter_eval_loss"), 5e-6) << a.name;
    EXPECT_EQ(read_json(folder / "merged/config.json").at("tie_word_embeddings"), a.tied) << a.name;
    EXPECT_EQ(SafetensorsReader(folder / "merged").contains("lm_head.weight"), !a.tied) << a.name;
  }
}

TEST(Merge, TakesAnAdapterWithMagnitudesAloneAndWhole) {
  const TempFolder folder;
  const fs::path dora = kGoldens / "lora_dora_llama/adapter";
  const auto refused = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"merge", "--model", kModel, "--output", folder / "merged", "--adapter", dora});
    const Outcome outcome = qtrain({.words = words});
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("DoRA"));
  };
  refused({"--adapter", kAdapter});
  refused({"--weights", "0.5"});
  fs::create_directories(folder / "plain");
  fs::copy_file(kAdapter / "adapter_model.safetensors", folder / "plain/adapter_model.safetensors");
  fs::copy_file(dora / "adapter_config.json", folder / "plain/adapter_config.json");
  const Outcome bare =
      qtrain({.words = {"merge", "--model", kModel, "--output", folder / "merged", "--adapter", folder / "plain"}});
  EXPECT_EQ(bare.code, 3);
  EXPECT_THAT(bare.err, HasSubstr("lora_magnitude_vector"));
}

TEST(Merge, ReplacesWholeModulesByTheirShare) {
  const TempFolder folder;
  const fs::path model = kGoldens / "qwen3_hd8", adapter = kGoldens / "lora_saved_modules/adapter";
  qtrain_ok({.words = {"merge", "--model", model, "--adapter", adapter, "--output", folder / "whole"}});
  qtrain_ok(
      {.words = {"merge", "--model", model, "--adapter", adapter, "--weights", "0.25", "--output", folder / "part"}});
  const auto before = tensors_of(model), saved = tensors_of(adapter), whole = tensors_of(folder / "whole"),
             part = tensors_of(folder / "part");
  for (const char* name : {"lm_head.weight", "model.embed_tokens.weight", "model.layers.1.self_attn.q_norm.weight"}) {
    const auto& now = saved.at(std::string("base_model.model.") + name);
    EXPECT_EQ(whole.at(name), now) << name;
    for (std::size_t i = 0; i < now.size(); ++i)
      ASSERT_NEAR(part.at(name)[i], 0.75 * before.at(name)[i] + 0.25 * now[i], 1e-6) << name;
  }
}

TEST(Adapters, OfPeftAreSavedAsTheyWereRead) {
  for (const OuterAdapter& a : kOuterAdapters) {
    const TempFolder folder;
    Json run = tiny_run(folder / "out");
    run.update({{"model_name_or_path", (kGoldens / a.model).string()},
                {"adapter_name_or_path", (kGoldens / a.name / "adapter").string()},
                {"learning_rate", 0},
                {"max_steps", 1}});
    train_ok(folder.path(), run);
    EXPECT_EQ(largest_difference(folder / "out", kGoldens / a.name / "adapter"), 0) << a.name;
  }
}

TEST(Merge, SaysWhatDoesNotFit) {
  const TempFolder folder;
  const auto merge = [&](const fs::path& model, const fs::path& adapter, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"merge", "--model", model, "--adapter", adapter};
    if (more.empty()) more = {"--output", folder / "out"};
    words.insert(words.end(), more.begin(), more.end());
    return qtrain({.words = words});
  };
  const Outcome own = merge(kModel, kAdapter, {"--output", kModel});
  EXPECT_EQ(own.code, 2);
  EXPECT_THAT(own.err, HasSubstr("the output is an input of the command"));
  const Outcome count = merge(kModel, kAdapter, {"--weights", "1,2", "--output", folder / "out"});
  EXPECT_EQ(count.code, 2);
  EXPECT_THAT(count.err, HasSubstr("--weights has 2 numbers for 1 adapters"));
  const Outcome word = merge(kModel, kAdapter, {"--weights", "1,x", "--output", folder / "out"});
  EXPECT_EQ(word.code, 2);
  EXPECT_THAT(word.err, HasSubstr("\"x\" is not a number"));
  const Outcome other = merge(kGoldens / "qwen3_hd8", kAdapter);
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, HasSubstr("trained on this model"));
  const fs::path quantized = folder / "quantized";
  fs::create_directories(quantized);
  write_file(quantized / "config.json", R"({"quantization_config": {"quant_method": "bitsandbytes"}})");
  const Outcome four_bit = merge(quantized, kAdapter);
  EXPECT_EQ(four_bit.code, 3);
  EXPECT_THAT(four_bit.err, HasSubstr("16-bit model that they were made from"));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

// PEFT only warns of such layers, and computes without them.
TEST(Merge, RefusesAnAdapterWithoutSomeOfItsLayers) {
  const TempFolder folder;
  const fs::path cut = folder / "cut";
  fs::create_directories(cut);
  fs::copy(kAdapter / "adapter_config.json", cut);
  const SafetensorsReader whole(kAdapter);
  NamedTensors tensors;
  for (const auto& [name, tensor] : whole.tensors())
    if (name.find("layers.1.mlp.down_proj") == std::string::npos) tensors.emplace_back(name, tensor);
  write_safetensors(cut / "adapter_model.safetensors", tensors);
  const Outcome outcome = qtrain({.words = {"merge", "--model", kModel, "--adapter", cut, "--output", folder / "out"}});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("has no tensors for model.layers.1.mlp.down_proj.weight, which its config names"));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Merge, TakesTokenizerAndTemplateThatTheAdapterWasTrainedWith) {
  const TempFolder folder;
  const fs::path model = folder / "model", trained = folder / "trained";
  fs::create_directories(model);
  for (const char* name : {"config.json", "model.safetensors"}) fs::copy_file(kModel / name, model / name);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    fs::copy_file(kChatml / name, model / name);
  write_file(model / "generation_config.json", R"({"eos_token_id": 2, "temperature": 0.5})");
  fs::copy(kAdapter, trained);
  fs::copy_file(kChatml / "tokenizer.json", trained / "tokenizer.json");
  Json text = read_json(kChatml / "tokenizer_config.json");
  text["eos_token"] = "<|endoftext|>";
  write_file(trained / "tokenizer_config.json", dump_json(text));
  write_file(trained / "chat_template.jinja", "of the adapter");
  const auto merge = [&](const std::vector<fs::path>& adapters, const char* to) {
    std::vector<std::string> words{"merge", "--model", model, "--output", folder / to};
    for (const fs::path& adapter : adapters) words.insert(words.end(), {"--adapter", adapter});
    qtrain_ok({.words = words});
  };
  merge({kAdapter, trained}, "own");
  EXPECT_EQ(bytes_of(folder / "own/chat_template.jinja"), "of the adapter");
  EXPECT_EQ(read_json(folder / "own/tokenizer_config.json").at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(read_json(folder / "own/config.json").at("eos_token_id"), 0);
  EXPECT_EQ(read_json(folder / "own/generation_config.json"), Json({{"eos_token_id", {0, 2}}, {"temperature", 0.5}}));

  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) fs::remove(trained / name);
  merge({trained}, "template");
  EXPECT_EQ(bytes_of(folder / "template/chat_template.jinja"), "of the adapter");
  merge({kAdapter}, "none");
  EXPECT_EQ(bytes_of(folder / "none/chat_template.jinja"), bytes_of(model / "chat_template.jinja"));
  for (const char* to : {"template", "none"})
    for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json"})
      EXPECT_EQ(bytes_of(folder / to / name), bytes_of(model / name)) << to;
}

}  // namespace
}  // namespace qtrain::e2e
