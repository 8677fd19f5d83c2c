#include "model/model_config.h"

#include <gmock/gmock.h>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "tests/model/support.h"

namespace qtrain::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig parse_model(const Json& more) {
  return parse_model_config(small_config(more), "m/config.json");
}

Json without(const char* key) {
  Json c = small_config(Json::object());
  c.erase(key);
  return c;
}

Json rope(Json fields) {
  return {{"rope_parameters", std::move(fields)}};
}

/// Fields that are not supported, and the key that the message must name.
struct Refusal {
  Json config;
  const char* key;
};

std::vector<Refusal> refusals() {
  const Json qwen{{"model_type", "qwen2"}, {"use_sliding_window", true}, {"sliding_window", 4}};
  const auto qwen_with = [&](Json more) {
    Json c = qwen;
    c.update(more);
    return c;
  };
  return {
      {{{"model_type", "gpt2"}}, "model_type"},
      {{{"model_type", 3}}, "model_type"},
      {{{"hidden_size", 0}}, "hidden_size"},
      {{{"hidden_size", -12}}, "hidden_size"},
      {{{"hidden_size", 12.5}}, "hidden_size"},
      {{{"hidden_size", "12"}}, "hidden_size"},
      {{{"hidden_size", 18446744073709551615u}}, "hidden_size"},
      {{{"intermediate_size", nullptr}}, "intermediate_size"},
      {{{"num_hidden_layers", 20000}}, "num_hidden_layers"},
      {{{"num_attention_heads", 3}}, "num_key_value_heads"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads"},
      {{{"head_dim", nullptr}, {"hidden_size", 13}}, "head_dim"},
      {{{"head_dim", 5}}, "head_dim"},
      {{{"head_dim", 512}}, "head_dim"},
      {{{"vocab_size", std::int64_t{1} << 40}}, "vocab_size"},
      {{{"max_position_embeddings", 0}}, "max_position_embeddings"},
      {{{"hidden_act", "gelu"}}, "hidden_act"},
      {{{"attention_dropout", 0.1}}, "attention_dropout"},
      {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
      {{{"quantization_config", {{"quant_method", "gptq"}}}}, "quant_method gptq"},
      {{{"rms_norm_eps", 0}}, "rms_norm_eps"},
      {{{"rms_norm_eps", "1e-5"}}, "rms_norm_eps"},
      {{{"tie_word_embeddings", 1}}, "tie_word_embeddings"},
      {{{"attention_bias", "yes"}}, "attention_bias"},
      {{{"mlp_bias", 0}}, "mlp_bias"},
      {{{"dtype", "float8_e4m3fn"}}, "dtype"},
      {{{"torch_dtype", "int8"}}, "torch_dtype"},
      {{{"eos_token_id", "</s>"}}, "eos_token_id"},
      {{{"eos_token_id", {1, 2.5}}}, "eos_token_id"},
      {{{"bos_token_id", 4294967297}}, "bos_token_id"},
      {{{"rope_theta", 0}}, "rope_theta"},
      {{{"rope_theta", "1e6"}}, "rope_theta"},
      {{{"rope_scaling", "linear"}}, "rope_scaling"},
      {rope({{"rope_type", "longrope"}, {"factor", 2}}), "short_factor"},
      {rope({{"rope_type", "longrope"}, {"short_factor", {1, 1, 1}}, {"long_factor", {1, 2}}}), "long_factor"},
      {rope({{"rope_type", "longrope"}, {"short_factor", {1, 0, 1}}, {"long_factor", {1, 2, 2}}}), "short_factor"},
      {{{"model_type", "phi3"}, {"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}, "rope_type"},
      {{{"model_type", "phi3"}, {"partial_rotary_factor", 0.5}}, "partial_rotary_factor"},
      {{{"model_type", "phi3"}, {"partial_rotary_factor", 1.5}}, "partial_rotary_factor"},
      {{{"model_type", "phi3"}, {"resid_pdrop", 0.1}}, "resid_pdrop"},
      {{{"model_type", "gpt_oss"}, {"swiglu_limit", 0}}, "swiglu_limit"},
      {{{"model_type", "gpt_oss"}, {"num_experts_per_tok", 200}}, "num_experts_per_tok"},
      {{{"quantization_config", {{"quant_method", "mxfp4"}}}}, "mxfp4"},
      {rope({{"type", "su"}, {"factor", 2}}), "rope_type"},
      {rope({{"rope_type", "linear"}}), "factor"},
      {rope({{"rope_type", "linear"}, {"factor", 0.5}}), "factor"},
      {rope({{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}), "partial_rotary_factor"},
      {rope({{"full_attention", {{"rope_type", "default"}}}}), "full_attention"},
      {rope({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}),
       "high_freq_factor"},
      {rope({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 0}}), "low_freq_factor"},
      {rope({{"rope_type", "llama3"}, {"factor", 8}, {"original_max_position_embeddings", 0}}),
       "original_max_position_embeddings"},
      {rope({{"rope_type", "yarn"}, {"factor", 8}, {"beta_fast", 0}}), "beta_fast"},
      {rope({{"rope_type", "yarn"}, {"factor", 8}, {"beta_slow", -1}}), "beta_slow"},
      {rope({{"rope_type", "yarn"}, {"factor", 8}, {"attention_factor", 0}}), "attention_factor"},
      {rope({{"rope_type", "yarn"}, {"factor", 8}, {"truncate", "no"}}), "truncate"},
      {{{"model_type", "mistral"}, {"sliding_window", 0}}, "sliding_window"},
      {{{"model_type", "mistral"}, {"sliding_window", "4096"}}, "sliding_window"},
      {qwen_with({{"sliding_window", 4.5}}), "sliding_window"},
      {qwen_with({{"use_sliding_window", "true"}}), "use_sliding_window"},
      {qwen_with({{"max_window_layers", -1}}), "max_window_layers"},
      {qwen_with({{"layer_types", {"sliding_attention"}}}), "layer_types"},
      {qwen_with({{"layer_types", {"sliding_attention", "linear_attention"}}}), "linear_attention"},
      {qwen_with({{"layer_types", "sliding_attention"}}), "layer_types"},
      {{{"model_type", "smollm3"}, {"no_rope_layers", {1}}}, "no_rope_layers"},
      {{{"model_type", "smollm3"}, {"no_rope_layers", 1}}, "no_rope_layers"},
      {{{"model_type", "smollm3"}, {"no_rope_layers", {1, 0.5}}}, "no_rope_layers"},
      {{{"model_type", "smollm3"}, {"no_rope_layer_interval", 0}}, "no_rope_layer_interval"},
      {{{"model_type", "smollm3"}, {"sliding_window", 4}, {"layer_types", {"sliding_attention", "full_attention"}}},
       "use_sliding_window"},
      {{{"model_type", "granite"}, {"embedding_multiplier", 0}}, "embedding_multiplier"},
      {{{"model_type", "granite"}, {"attention_multiplier", -1}}, "attention_multiplier"},
      {{{"model_type", "granite"}, {"residual_multiplier", "1"}}, "residual_multiplier"},
      {{{"model_type", "granite"}, {"logits_scaling", 0}}, "logits_scaling"},
      {{{"model_type", "gemma3"}}, "model_type"},
      {{{"model_type", "gemma3_text"}, {"attn_logit_softcapping", 50}}, "attn_logit_softcapping"},
      {{{"model_type", "gemma3_text"}, {"use_bidirectional_attention", true}}, "use_bidirectional_attention"},
      {{{"model_type", "gemma3_text"}, {"sliding_window_pattern", 0}}, "sliding_window_pattern"},
      {{{"model_type", "gemma3_text"}, {"rope_local_base_freq", 0}}, "rope_local_base_freq"},
      {{{"model_type", "gemma3_text"}, {"rope_scaling", {{"type", "linear"}, {"factor", 8}}}}, "rope_scaling"},
      {{{"model_type", "gemma3_text"}, {"rope_parameters", {{"rope_type", "default"}}}}, "rope_parameters"},
      {{{"model_type", "gemma3_text"}, {"rope_parameters", {{"full_attention", 3}}}}, "full_attention"},
      {{{"model_type", "mixtral"}, {"num_local_experts", 0}}, "num_local_experts"},
      {{{"model_type", "mixtral"}, {"num_local_experts", 2}, {"num_experts_per_tok", 3}}, "num_experts_per_tok"},
      {{{"model_type", "mixtral"}, {"router_jitter_noise", 0.1}}, "router_jitter_noise"},
      {{{"model_type", "qwen2_moe"}, {"shared_expert_intermediate_size", 0}}, "shared_expert_intermediate_size"},
      {{{"model_type", "qwen2_moe"}, {"layer_types", {"sliding_attention", "full_attention"}}}, "use_sliding_window"},
      {{{"model_type", "olmo3"}, {"rope_theta", 1e4}}, "rope_theta"},
      {{{"model_type", "olmo3"}, {"rope_parameters", {{"rope_type", "default"}}}}, "rope_parameters"},
      {{{"model_type", "olmo3"}, {"rope_scaling", {{"type", "yarn"}, {"factor", 8}}}}, "rope_scaling"},
      {{{"model_type", "exaone4"}, {"sliding_window_pattern", "LLLG"}}, "sliding_window_pattern"},
      {{{"model_type", "ministral"}, {"layer_types", {"full_attention"}}}, "layer_types"},
      {{{"model_type", "ministral3"}, {"rope_parameters", {{"rope_type", "yarn"}, {"factor", 8}}}},
       "llama_4_scaling_beta"},
      {{{"model_type", "ministral3"}, {"rope_parameters", {{"llama_4_scaling_beta", 0.1}}}},
       "original_max_position_embeddings"},
      {{{"model_type", "ministral3"}, {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8}}}}, "rope_scaling"},
      {{{"model_type", "olmoe"}, {"clip_qkv", 8}}, "clip_qkv"},
      {{{"model_type", "hunyuan_v1_dense"}, {"rope_scaling", {{"type", "dynamic"}, {"alpha", -1}}}}, "alpha"},
  };
}

TEST(ModelConfig, RefusalsNameFileAndKey) {
  for (const Refusal& r : refusals()) {
    SCOPED_TRACE(r.config.dump());
    const Error e = error_of([&] { parse_model(r.config); });
    EXPECT_EQ(e.kind(), ErrorKind::input);
    EXPECT_THAT(e.text().place, HasSubstr("m/config.json"));
    EXPECT_THAT(e.text().cause, HasSubstr(r.key));
  }
}

TEST(ModelConfig, NamesWhatIsMissing) {
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"}) {
    const Error e = error_of([&] { parse_model_config(without(key), "c"); });
    EXPECT_EQ(e.kind(), ErrorKind::input);
    EXPECT_THAT(e.what(), HasSubstr("\"" + std::string(key) + "\" is missing"));
  }
  EXPECT_THAT(error_of([&] { parse_model_config(without("model_type"), "c"); }).what(), HasSubstr("model_type"));
  EXPECT_EQ(error_of([] { parse_model_config(Json::array(), "c"); }).kind(), ErrorKind::input);
}

TEST(ModelConfig, UnknownFamilyListsTheKnownOnes) {
  EXPECT_THAT(error_of([] {
                parse_model({{"model_type", "gpt2"}});
              })
                  .text()
                  .remedy,
              ::testing::AllOf(HasSubstr("llama"), HasSubstr("mistral"), HasSubstr("qwen2"), HasSubstr("qwen3")));
}

TEST(ModelConfig, FillsInWhatTransformersFillsIn) {
  Json json = small_config({{"hidden_size", 16}});
  for (const char* key :
       {"num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings"})
    json.erase(key);
  const ModelConfig c = parse_model_config(json, "c");
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 4);
  EXPECT_EQ(c.max_position_embeddings, 2048);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_FALSE(c.tie_word_embeddings);
  EXPECT_EQ(c.ropes.front().theta, 10000);
  json.update({{"model_type", "qwen3"}, {"num_key_value_heads", 2}});
  EXPECT_EQ(parse_model_config(json, "c").head_dim, 128);
}

TEST(ModelConfig, FamiliesDifferInBiasesAndHeadNorms) {
  const auto describe = [](const Json& more) {
    const ModelConfig c = parse_model(more);
    return std::vector<bool>{c.qkv_bias, c.o_bias, c.mlp_bias, c.qk_norm == QkNorm::per_head};
  };
  EXPECT_THAT(describe({}), ElementsAre(false, false, false, false));
  EXPECT_THAT(describe({{"attention_bias", true}}), ElementsAre(true, true, false, false));
  EXPECT_THAT(describe({{"mlp_bias", true}, {"attention_bias", nullptr}}), ElementsAre(false, false, true, false));
  EXPECT_THAT(describe({{"model_type", "mistral"}, {"attention_bias", true}}), ElementsAre(false, false, false, false));
  EXPECT_THAT(describe({{"model_type", "qwen2"}}), ElementsAre(true, false, false, false));
  EXPECT_THAT(describe({{"model_type", "qwen3"}}), ElementsAre(false, false, false, true));
  EXPECT_THAT(describe({{"model_type", "qwen3"}, {"attention_bias", true}}), ElementsAre(true, true, false, true));
}

TEST(ModelConfig, WindowsOfEachLayer) {
  const auto windows = [](Json more) {
    more["num_hidden_layers"] = 3;
    std::vector<std::int64_t> windows;
    for (const LayerAttention& layer : parse_model(more).attention) windows.push_back(layer.window);
    return windows;
  };
  EXPECT_THAT(windows({{"sliding_window", 4}}), ElementsAre(0, 0, 0));  // llama has none
  EXPECT_THAT(windows({{"model_type", "mistral"}}), ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(windows({{"model_type", "mistral"}, {"sliding_window", nullptr}}), ElementsAre(0, 0, 0));
  EXPECT_THAT(windows({{"model_type", "mistral"},
                       {"sliding_window", 4},
                       {"layer_types", {"full_attention", "full_attention", "full_attention"}}}),
              ElementsAre(4, 4, 4));
  const Json qwen{{"model_type", "qwen2"}, {"sliding_window", 5}, {"max_window_layers", 1}};
  EXPECT_THAT(windows(qwen), ElementsAre(0, 0, 0));
  const auto on = [&](Json more) {
    Json c = qwen;
    c["use_sliding_window"] = true;
    c.update(more);
    return c;
  };
  EXPECT_THAT(windows(on(Json::object())), ElementsAre(0, 5, 5));
  EXPECT_THAT(windows(on({{"max_window_layers", 0}, {"model_type", "qwen3"}})), ElementsAre(5, 5, 5));
  EXPECT_THAT(windows(on({{"sliding_window", nullptr}})), ElementsAre(0, 0, 0));
  EXPECT_THAT(windows(on({{"model_type", "qwen2_moe"}, {"max_window_layers", 2}})), ElementsAre(5, 0, 0));
  EXPECT_THAT(windows(on({{"model_type", "qwen2_moe"}, {"max_window_layers", 3}})), ElementsAre(5, 0, 5));
  EXPECT_THAT(windows({{"model_type", "olmo3"}, {"sliding_window", 4}}), ElementsAre(4, 4, 4));
  EXPECT_THAT(windows({{"model_type", "exaone4"}, {"sliding_window_pattern", 2}}), ElementsAre(4096, 0, 4096));
  EXPECT_THAT(windows({{"model_type", "ministral"}}), ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(windows(on({{"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}})),
              ElementsAre(5, 0, 5));
}

TEST(ModelConfig, ReadsRotaryParametersOfBothVersions) {
  const Json inner{
      {"factor", 8.0}, {"low_freq_factor", 2.0}, {"high_freq_factor", 3.0}, {"original_max_position_embeddings", 16}};
  Json now = inner, before = inner;
  now.update({{"rope_type", "llama3"}, {"rope_theta", 5e5}});
  before["type"] = "llama3";
  for (const Json& more : {Json{{"rope_parameters", now}}, Json{{"rope_scaling", before}, {"rope_theta", 5e5}},
                           Json{{"rope_parameters", nullptr}, {"rope_scaling", before}, {"rope_theta", 5e5}}}) {
    const RopeConfig r = parse_model(more).ropes.front();
    EXPECT_EQ(r.type, RopeConfig::Type::llama3);
    EXPECT_EQ(r.theta, 5e5);
    EXPECT_EQ(r.factor, 8);
    EXPECT_EQ(r.low_freq_factor, 2);
    EXPECT_EQ(r.high_freq_factor, 3);
    EXPECT_EQ(r.original_max_position, 16);
  }
}

TEST(ModelConfig, OriginalLengthOfRotaryParameters) {
  const auto length = [](const char* type, Json outer, Json inner) {
    inner.update({{"rope_type", type}, {"factor", 2.0}});
    outer["rope_parameters"] = inner;
    return parse_model(outer).ropes.front().original_max_position;
  };
  const Json key16{{"original_max_position_embeddings", 16}}, key8{{"original_max_position_embeddings", 8}};
  for (const char* type : {"yarn", "llama3"}) {
    EXPECT_EQ(length(type, Json::object(), Json::object()), 64);
    EXPECT_EQ(length(type, Json::object(), key16), 16);
    EXPECT_EQ(length(type, key8, key16), 8) << "a length outside the table wins";
  }
  EXPECT_EQ(length("dynamic", key8, key16), 64) << "dynamic ignores it";
  // yarn without a factor: the ratio of both lengths.
  EXPECT_EQ(parse_model(rope({{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 16}}))
                .ropes.front()
                .factor,
            4);
}

TEST(ModelConfig, FillsInWhatPhi3FillsIn) {
  Json json = small_config({{"model_type", "phi3"}});
  for (const char* key : {"max_position_embeddings", "rms_norm_eps"}) json.erase(key);
  const ModelConfig c = parse_model_config(json, "c");
  EXPECT_EQ(c.max_position_embeddings, 4096);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.pad_token_id, 32000);
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(32000));
  EXPECT_EQ(c.attention.front().window, 0);
  json["pad_token_id"] = nullptr;
  EXPECT_FALSE(parse_model_config(json, "c").pad_token_id.has_value());
  // Its configuration class has a pre-training length: one inside the table is ignored.
  json["rope_scaling"] = {{"type", "su"},
                          {"short_factor", {1, 1, 1}},
                          {"long_factor", {1, 2, 3}},
                          {"original_max_position_embeddings", 16}};
  const RopeConfig rope = parse_model_config(json, "c").ropes.front();
  EXPECT_EQ(rope.type, RopeConfig::Type::longrope);
  EXPECT_EQ(rope.original_max_position, 4096);
  EXPECT_FALSE(rope.is_long(4096));
  EXPECT_TRUE(rope.is_long(4097));
}

TEST(ModelConfig, FillsInWhatGptOssFillsIn) {
  Json json = small_config({{"model_type", "gpt_oss"}, {"num_hidden_layers", 3}});
  for (const char* key : {"max_position_embeddings", "rms_norm_eps", "head_dim"}) json.erase(key);
  const ModelConfig c = parse_model_config(json, "c");
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.max_position_embeddings, 131072);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_TRUE(c.qkv_bias && c.o_bias && c.attention_sinks);
  std::vector<std::int64_t> windows;
  for (const LayerAttention& layer : c.attention) windows.push_back(layer.window);
  EXPECT_THAT(windows, ElementsAre(128, 0, 128));
  EXPECT_EQ(c.experts->count, 128);
  EXPECT_EQ(c.experts->per_token, 4);
  EXPECT_EQ(c.experts->swiglu_alpha, 1.702);
  EXPECT_EQ(c.experts->swiglu_limit, 7);
  const RopeConfig& rope = c.ropes.front();
  EXPECT_EQ(rope.type, RopeConfig::Type::yarn);
  EXPECT_EQ(rope.theta, 150000);
  EXPECT_EQ(rope.factor, 32);
  EXPECT_EQ(rope.original_max_position, 4096);
  EXPECT_FALSE(rope.truncate);
  // Experts in MXFP4 are expanded: the config that is written does not mention MXFP4.
  json["quantization_config"] = {{"quant_method", "mxfp4"}};
  const ModelConfig four = parse_model_config(json, "c");
  EXPECT_FALSE(four.quantization.has_value());
  EXPECT_FALSE(four.json.contains("quantization_config"));
  EXPECT_EQ(four.dtype, DType::bf16);
}

TEST(ModelConfig, TokensAndDtypes) {
  const ModelConfig c = parse_model(
      {{"eos_token_id", {5, 6}}, {"bos_token_id", 1}, {"torch_dtype", "bfloat16"}, {"pad_token_id", nullptr}});
  EXPECT_THAT(c.eos_token_ids, ElementsAre(5, 6));
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_FALSE(c.pad_token_id.has_value());
  EXPECT_EQ(c.dtype, DType::bf16);
  EXPECT_EQ(parse_model({{"dtype", "torch.float16"}, {"torch_dtype", "float32"}}).dtype, DType::f16);
  EXPECT_EQ(parse_model({}).dtype, DType::f32);
  EXPECT_THAT(parse_model({{"eos_token_id", 7}}).eos_token_ids, ElementsAre(7));
}

// Gemma 3: layers with full attention have one base and scaling, sliding layers another.
TEST(ModelConfig, RotaryEmbeddingsOfEachKindOfLayer) {
  const auto read = [](Json more) {
    more.update({{"model_type", "gemma3_text"}, {"num_hidden_layers", 3}, {"sliding_window", 5}});
    return parse_model(more);
  };
  const Json linear{{"rope_type", "linear"}, {"factor", 8.0}};
  Json full = linear;
  full["rope_theta"] = 500.0;
  for (const Json& more :
       {Json{{"rope_theta", 500.0}, {"rope_local_base_freq", 7.0}, {"rope_scaling", linear}},
        Json{{"rope_parameters", {{"full_attention", full}, {"sliding_attention", {{"rope_theta", 7.0}}}}}},
        Json{{"rope_parameters", {{"full_attention", full}, {"sliding_attention", nullptr}}},
             {"rope_local_base_freq", 7.0}}}) {
    const ModelConfig c = read(more);
    ASSERT_EQ(c.ropes.size(), 2u);
    EXPECT_EQ(c.ropes[0].type, RopeConfig::Type::linear);
    EXPECT_EQ(c.ropes[0].factor, 8);
    EXPECT_EQ(c.ropes[0].theta, 500);
    EXPECT_EQ(c.ropes[1].type, RopeConfig::Type::standard);
    EXPECT_EQ(c.ropes[1].theta, 7);
  }
  const auto layers = [&](const Json& more) {
    std::vector<std::pair<std::int64_t, int>> out;
    for (const LayerAttention& layer : read(more).attention) out.emplace_back(layer.window, layer.rope);
    return out;
  };
  using Pair = std::pair<std::int64_t, int>;
  EXPECT_THAT(layers({{"sliding_window_pattern", 2}}), ElementsAre(Pair{5, 1}, Pair{0, 0}, Pair{5, 1}));
  EXPECT_THAT(layers({{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}),
              ElementsAre(Pair{0, 0}, Pair{5, 1}, Pair{0, 0}));
}

TEST(ModelConfig, AModelOfImagesAndTextNamesItsLanguageModel) {
  const Error e = error_of([] {
    parse_model_config({{"model_type", "gemma3"}, {"text_config", {{"model_type", "gemma3_text"}}}}, "c");
  });
  EXPECT_EQ(e.kind(), ErrorKind::input);
  EXPECT_THAT(e.text().remedy, HasSubstr("docs/files.md"));
}

TEST(ModelConfig, TheRotaryTableOfVersion4WinsUnlessItIsEmpty) {
  const Json now{{"rope_type", "linear"}, {"factor", 2.0}}, before{{"rope_type", "linear"}, {"factor", 4.0}};
  const auto factor = [&](const Json& v4) {
    return parse_model({{"rope_parameters", now}, {"rope_scaling", v4}}).ropes.front().factor;
  };
  EXPECT_EQ(factor(before), 4);
  EXPECT_EQ(factor(Json::object()), 2);
  EXPECT_EQ(factor(nullptr), 2);
}

TEST(ModelConfig, LoadsAFolderOrAFile) {
  const TempFolder folder;
  write_file(folder / "config.json", dump_json(small_config({{"vocab_size", 31}})));
  EXPECT_EQ(load_model_config(folder.path()).vocab_size, 31);
  EXPECT_EQ(load_model_config(folder / "config.json").vocab_size, 31);
  const Error e = error_of([&] { load_model_config(folder / "nothing"); });
  EXPECT_EQ(e.kind(), ErrorKind::input);
  EXPECT_THAT(e.what(), HasSubstr("nothing"));
}

TEST(ModelConfig, EachFamilyHasItsOwnKeyOfTheActivation) {
  const auto activation = [](const Json& more) { return parse_model_config(small_config(more), "c").activation; };
  EXPECT_EQ(activation({{"hidden_activation", "gelu_pytorch_tanh"}}), ops::Activation::silu);
  EXPECT_EQ(activation({{"model_type", "gemma2"}, {"hidden_act", "silu"}}), ops::Activation::gelu_tanh);
  EXPECT_EQ(activation({{"model_type", "gemma2"}, {"hidden_activation", "silu"}}), ops::Activation::silu);
}

}  // namespace
}  // namespace qtrain::testing
