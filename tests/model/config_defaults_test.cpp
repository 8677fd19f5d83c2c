// Defaults for keys that a config.json omits, against those of transformers (make_config_defaults.py).
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "model/families/family.h"
#include "model/model_config.h"
#include "tests/core/temp_folder.h"

namespace qtrain::testing {
namespace {

std::string describe(const RopeConfig& r) {
  return fmt::format("type {} theta {} factor {} original {}\n", static_cast<int>(r.type), r.theta, r.factor,
                     r.original_max_position);
}

std::string describe(const std::optional<ExpertsConfig>& e) {
  if (!e) return "no experts\n";
  return fmt::format("experts {} {} {} loss {} {} norm {} layers {}\n", e->count, e->per_token, e->intermediate_size,
                     e->balance_coefficient, e->is_balanced, static_cast<int>(e->norm), fmt::join(e->layers, ""));
}

/// Everything in a model config except its origin.
std::string describe(const ModelConfig& c) {
  std::string text = fmt::format("sizes {} {} {} {} {} {} {} {}\n", c.hidden_size, c.intermediate_size, c.layers,
                                 c.heads, c.kv_heads, c.head_dim, c.vocab_size, c.max_position_embeddings);
  text += fmt::format("eps {} range {} tied {} activation {} biases {} {} {} norms {} {}\n", c.rms_norm_eps,
                      c.initializer_range, c.tie_word_embeddings, static_cast<int>(c.activation), c.qkv_bias, c.o_bias,
                      c.mlp_bias, static_cast<int>(c.qk_norm), c.norm_offset);
  text += fmt::format("scales {} {} {} {} {} caps {} {}\n", c.score_scale(), c.embedding_scale, c.residual_scale,
                      c.rounds_embedding_scale, c.logit_scale, c.attention_softcap, c.logit_softcap);
  text += fmt::format("eos {} bos {} pad {}\n", fmt::join(c.eos_token_ids, ","), c.bos_token_id.value_or(-2),
                      c.pad_token_id.value_or(-2));
  for (const LayerAttention& layer : c.attention) text += fmt::format("{}:{} ", layer.window, layer.rope);
  for (const RopeConfig& rope : c.ropes) text += describe(rope);
  return text + describe(c.experts);
}

class ConfigDefaults : public ::testing::TestWithParam<const Family*> {
 protected:
  const Json whole_ =
      read_json(QTRAIN_SOURCE_DIR "/tests/model/goldens/config_defaults.json").at(std::string(GetParam()->model_type));
  const std::string expected_ = describe(parse_model_config(whole_, "whole"));

  std::string without(const std::set<std::string>& keys) const {
    Json less = whole_;
    for (const std::string& key : keys) less.erase(key);
    return describe(parse_model_config(less, "less"));
  }
};

// Keys that most families have no default for.
const std::set<std::string> kSizes{"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                   "vocab_size"};

TEST_P(ConfigDefaults, AreThoseOfTransformers) {
  std::set<std::string> all;
  for (const auto& [key, value] : whole_.items()) {
    if (key == "model_type" || kSizes.contains(key)) continue;
    all.insert(key);
    EXPECT_EQ(without({key}), expected_) << key;
  }
  EXPECT_EQ(without(all), expected_);
}

TEST_P(ConfigDefaults, SizesAreGuessedOnlyWherePublishedConfigsLeaveThemOut) {
  for (const std::string& key : kSizes) {
    if (GetParam()->model_type == "gemma3_text")
      EXPECT_EQ(without({key}), expected_) << key;
    else
      EXPECT_EQ(error_of([&] { without({key}); }).kind(), ErrorKind::input) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConfigDefaults, ::testing::ValuesIn(families().begin(), families().end()),
                         [](const auto& info) { return std::string(info.param->model_type); });

}  // namespace
}  // namespace qtrain::testing
