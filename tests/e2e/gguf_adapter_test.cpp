// export --adapter: LoRA adapters as llama.cpp adds them to a GGUF model, and models with a merged adapter.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/formats/gguf.h"
#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/e2e/support.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

const fs::path kSmallModel = source_folder() / "tests/convert/goldens/gguf/smollm.gguf";

/// The values of a matrix in f32, outermost dimension first.
struct GgufMatrix {
  std::int64_t rows, width;
  std::vector<float> values;

  explicit GgufMatrix(const GgufTensor& t) : rows(t.shape.front()), width(t.row()), values(t.data.size() / 4) {
    EXPECT_EQ(t.type, GgufType::f32);
    std::memcpy(values.data(), t.data.data(), t.data.size());
  }
  double at(std::int64_t r, std::int64_t c) const { return values[static_cast<std::size_t>(r * width + c)]; }
};

/// What llama.cpp adds to a weight [out, in]: alpha / rank * B A.
std::vector<double> added_by(const GgufFile& file, const std::string& weight) {
  const GgufMatrix a(file.tensor(weight + ".lora_a")), b(file.tensor(weight + ".lora_b"));
  const double scale = file.number_or("adapter.lora.alpha", 0) / static_cast<double>(b.width);
  EXPECT_EQ(a.rows, b.width) << weight;
  std::vector<double> sum;
  for (std::int64_t o = 0; o < b.rows; ++o)
    for (std::int64_t i = 0; i < a.width; ++i) {
      double v = 0;
      for (std::int64_t r = 0; r < a.rows; ++r) v += b.at(o, r) * a.at(r, i);
      sum.push_back(scale * v);
    }
  return sum;
}

// PEFT's B A of a golden adapter, times its scale.
std::vector<double> update_of(const fs::path& adapter, const std::string& module, double scale_times_rank) {
  const auto tensors = tensors_of(adapter);
  const std::string name = "base_model.model." + module;
  const auto &a = tensors.at(name + ".lora_A.weight"), &b = tensors.at(name + ".lora_B.weight");
  const SafetensorsReader reader(adapter);
  const Shape shape = reader.at(name + ".lora_A.weight").shape;
  const auto rank = static_cast<std::size_t>(shape[0]), in = static_cast<std::size_t>(shape[1]);
  std::vector<double> d;
  for (std::size_t o = 0; o < b.size() / rank; ++o)
    for (std::size_t i = 0; i < in; ++i) {
      double v = 0;
      for (std::size_t r = 0; r < rank; ++r) v += b[o * rank + r] * a[r * in + i];
      d.push_back(scale_times_rank / static_cast<double>(rank) * v);
    }
  return d;
}

// The rows of a query or key projection in the order of convert_hf_to_gguf.py for the llama architecture: the two
// halves of each head alternate.
std::vector<double> alternating(const std::vector<double>& rows, std::size_t heads, std::size_t width) {
  const std::size_t half = rows.size() / width / heads / 2;
  std::vector<double> out;
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t i = 0; i < half; ++i)
      for (const std::size_t j : {std::size_t{0}, std::size_t{1}}) {
        const auto begin = rows.begin() + static_cast<std::ptrdiff_t>((h * 2 * half + j * half + i) * width);
        out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
      }
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  // B is rounded once more if it contains a scale. Where products nearly cancel, the error is relative to other
  // elements.
  const double largest = std::abs(*std::ranges::max_element(want, {}, [](double v) { return std::abs(v); }));
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-7 * largest) << what << " " << i;
}

struct GoldenAdapter {
  const char *model, *adapter, *architecture;
};

Json exported(const GoldenAdapter& g, const fs::path& file) {
  qtrain_ok({.words = {"export", "--model", kGoldens / g.model, "--adapter", kGoldens / g.adapter / "adapter",
                       "--output", file}});
  const GgufFile read(file);
  EXPECT_EQ(read.text("general.type"), "adapter");
  EXPECT_EQ(read.text("adapter.type"), "lora");
  EXPECT_EQ(read.text("general.architecture"), g.architecture);
  return read_json(kGoldens / g.adapter / "adapter/adapter_config.json");
}

TEST(GgufAdapter, OfLlamaTurnsTheRowsOfQueriesAndKeys) {
  const TempFolder folder;
  const GoldenAdapter golden{"llama_gqa3_tied", "lora_llama_all", "llama"};
  const Json config = exported(golden, folder / "a.gguf");
  const GgufFile file(folder / "a.gguf");
  const Json model = read_json(kGoldens / golden.model / "config.json");
  const std::size_t hidden = model.at("hidden_size"), heads = model.at("num_attention_heads"),
                    kv_heads = model.at("num_key_value_heads");
  EXPECT_EQ(file.number_or("adapter.lora.alpha", 0), config.at("lora_alpha"));
  EXPECT_EQ(file.tensors().size(), 28u) << "A and B of seven layers in two blocks";
  const fs::path adapter = kGoldens / golden.adapter / "adapter";
  const auto update = [&](const char* name) { return update_of(adapter, std::string("model.layers.1.") + name, 8); };
  expect_near(added_by(file, "blk.1.attn_q.weight"), alternating(update("self_attn.q_proj"), heads, hidden), "q");
  expect_near(added_by(file, "blk.1.attn_k.weight"), alternating(update("self_attn.k_proj"), kv_heads, hidden), "k");
  expect_near(added_by(file, "blk.1.attn_v.weight"), update("self_attn.v_proj"), "v");
  expect_near(added_by(file, "blk.1.attn_output.weight"), update("self_attn.o_proj"), "o");
  expect_near(added_by(file, "blk.1.ffn_gate.weight"), update("mlp.gate_proj"), "gate");
  expect_near(added_by(file, "blk.1.ffn_up.weight"), update("mlp.up_proj"), "up");
  expect_near(added_by(file, "blk.1.ffn_down.weight"), update("mlp.down_proj"), "down");
}

// Readers divide the single alpha of the file by each rank; the rest of the scale is part of B.
TEST(GgufAdapter, KeepsScalesThatAreNotAlphaOverRank) {
  const TempFolder folder;
  (void)exported({"qwen3_hd8", "lora_qwen3_rs", "qwen3"}, folder / "rs.gguf");
  const fs::path rs = kGoldens / "lora_qwen3_rs/adapter";
  expect_near(added_by(GgufFile(folder / "rs.gguf"), "blk.0.attn_q.weight"),
              update_of(rs, "model.layers.0.self_attn.q_proj", 8 / std::sqrt(4.0) * 4), "alpha / sqrt(rank)");
  (void)exported({"qwen3_hd8", "lora_qwen3_patterns", "qwen3"}, folder / "patterns.gguf");
  const GgufFile patterns(folder / "patterns.gguf");
  const fs::path adapter = kGoldens / "lora_qwen3_patterns/adapter";
  EXPECT_EQ(patterns.tensor("blk.1.attn_q.weight.lora_a").shape.front(), 7);
  for (const auto& [gguf, module, alpha] : {std::tuple{"blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj", 8.0},
                                            std::tuple{"blk.0.ffn_up.weight", "model.layers.0.mlp.up_proj", 12.0}})
    expect_near(added_by(patterns, gguf), update_of(adapter, module, alpha), module);
}

// The rows of an embedding are looked up in A, so its A and B have swapped roles in the file.
TEST(GgufAdapter, HoldsTheFactorsOfEmbeddingAndHead) {
  const TempFolder folder;
  const GoldenAdapter golden{"qwen3_hd8", "lora_embeddings", "qwen3"};
  (void)exported(golden, folder / "a.gguf");
  const GgufFile file(folder / "a.gguf");
  const Json model = read_json(kGoldens / golden.model / "config.json");
  const GgufMatrix a(file.tensor("token_embd.weight.lora_a")), b(file.tensor("token_embd.weight.lora_b"));
  EXPECT_EQ(a.rows, model.at("vocab_size"));
  EXPECT_EQ(b.rows, model.at("hidden_size"));
  EXPECT_EQ(a.width, 4);
  EXPECT_EQ(b.width, 4);
  const auto peft = tensors_of(kGoldens / golden.adapter / "adapter");
  const auto& of_peft = peft.at("base_model.model.model.embed_tokens.lora_embedding_A");  // [4, vocabulary]
  for (std::int64_t v = 0; v < a.rows; ++v)
    for (std::int64_t r = 0; r < 4; ++r)
      ASSERT_EQ(a.at(v, r), of_peft[static_cast<std::size_t>(r * a.rows + v)]) << v << " " << r;
  EXPECT_EQ(file.tensor("output.weight.lora_a").shape, (std::vector<std::int64_t>{3, model.at("hidden_size")}));
}

/// A small model, its exported file, and an adapter trained on it.
class TrainedAdapter : public ::testing::Test {
 protected:
  void SetUp() override {
    qtrain_ok({.words = {"import", kSmallModel, "--output", folder_ / "model"}});
    write_file(folder_ / "rows.jsonl", jsonl({{{"text", "The film of 1999"}}, {{"text", "A year of water"}}}));
    train_ok(folder_.path(), {{"model_name_or_path", (folder_ / "model").string()},
                              {"dataset_name", (folder_ / "rows.jsonl").string()},
                              {"output_dir", adapter_.string()},
                              {"use_peft", true},
                              {"lora_r", 4},
                              {"lora_target_modules", "all-linear"},
                              {"learning_rate", 0.02},
                              {"max_steps", 3},
                              {"save_strategy", "no"}});
  }
  Outcome run_export(std::vector<std::string> more) {
    more.insert(more.begin(), {"export", "--model", folder_ / "model"});
    return qtrain({.words = more});
  }
  TempFolder folder_;
  fs::path adapter_ = folder_ / "adapter";
};

TEST_F(TrainedAdapter, OnTheExportedModelIsTheExportedMerge) {
  ASSERT_EQ(run_export({"--output", folder_ / "base.gguf", "--type", "f32"}).code, 0);
  ASSERT_EQ(run_export({"--adapter", adapter_, "--output", folder_ / "adapter.gguf"}).code, 0);
  ASSERT_EQ(run_export({"--adapter", adapter_, "--merge", "--output", folder_ / "merged.gguf", "--type", "f32"}).code,
            0);
  const GgufFile base(folder_ / "base.gguf"), adapter(folder_ / "adapter.gguf"), merged(folder_ / "merged.gguf");
  EXPECT_EQ(merged.values(), base.values()) << "the metadata of the model";
  ASSERT_EQ(merged.tensors().size(), base.tensors().size());
  int changed = 0;
  for (const auto& [name, tensor] : base.tensors()) {
    const GgufMatrix before(tensor), after(merged.tensor(name));
    std::vector<double> added(before.values.size());
    if (adapter.tensors().contains(name + ".lora_a")) added = added_by(adapter, name), ++changed;
    ASSERT_EQ(added.size(), after.values.size());
    for (std::size_t i = 0; i < added.size(); ++i)
      ASSERT_NEAR(after.values[i], before.values[i] + added[i], 1e-6 * (1 + std::abs(added[i]))) << name << " " << i;
  }
  EXPECT_GE(changed, 7);
  EXPECT_FALSE(fs::exists((folder_ / "merged.gguf").string() + ".merging"));
}

TEST_F(TrainedAdapter, ThatTheFormatCannotHoldIsRefused) {
  const Outcome alone = run_export({"--merge", "--output", folder_ / "x.gguf"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--adapter"));
  EXPECT_EQ(run_export({"--adapter", adapter_, "--output", folder_ / "x.gguf", "--type", "q8_0"}).code, 2);
  const Outcome other = run_export({"--adapter", kGoldens / "lora_llama_all/adapter", "--output", folder_ / "x.gguf"});
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, HasSubstr("trained on this model"));
  for (const auto& [model, adapter] :
       {std::pair{"llama_gqa3_tied", "lora_dora_llama"}, std::pair{"qwen3_hd8", "lora_saved_modules"},
        std::pair{"qwen3_gqa7_tied", "lora_embedding_tied"}}) {
    const Outcome outcome = qtrain({.words = {"export", "--model", kGoldens / model, "--adapter",
                                              kGoldens / adapter / "adapter", "--output", folder_ / "x.gguf"}});
    EXPECT_EQ(outcome.code, 3) << adapter;
    EXPECT_THAT(outcome.err, HasSubstr("--merge")) << adapter;
  }
  EXPECT_FALSE(fs::exists(folder_ / "x.gguf"));
}

}  // namespace
}  // namespace qtrain::e2e
