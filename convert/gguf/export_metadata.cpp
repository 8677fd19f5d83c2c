#include "convert/gguf/export_metadata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "model/families/family.h"
#include "model/rope_tables.h"
#include "text/template/load.h"

namespace qtrain {
namespace {

using Rope = RopeConfig::Type;

[[noreturn]] void refuse_key(const std::string& place, std::string_view key) {
  fail(ErrorKind::input, {.cause = fmt::format("GGUF cannot express \"{}\" of config.json", key),
                          .place = place,
                          .remedy = "the model cannot be exported without changing what it computes"});
}

std::uint32_t u32(std::int64_t value) {
  return static_cast<std::uint32_t>(value);
}

/// Yarn's default factor of cos and sin, which llama.cpp always applies.
double usual_attention_factor(const RopeConfig& rope) {
  return 1 + 0.1 * std::log(rope.factor);
}

void put_rope_scaling(GgufMetadata& metadata, const ModelConfig& config, std::vector<std::string>& notes) {
  const auto prefix = std::string(config.family->gguf.architecture) + ".rope.scaling.";
  const RopeConfig& rope = config.ropes.front();
  // llama3 scaling is stored in a tensor. llama.cpp reads this length only for yarn, but an import needs it to recover
  // the
  // other parameters.
  if (rope.type == Rope::llama3)
    metadata.put_integer(prefix + "original_context_length", u32(std::llround(rope.original_max_position)));
  if (rope.type != Rope::linear && rope.type != Rope::yarn) return;
  metadata.put_text(prefix + "type", rope.type == Rope::yarn ? "yarn" : "linear");
  metadata.put_number(prefix + "factor", static_cast<float>(rope.factor));
  if (rope.type == Rope::linear) return;
  metadata.put_integer(prefix + "original_context_length", u32(std::llround(rope.original_max_position)));
  const double attention = rope_frequencies(rope, config.head_dim, 1).attention_factor;
  if (std::abs(attention / usual_attention_factor(rope) - 1) > 1e-6) {
    metadata.put_number(prefix + "yarn_attn_factor", static_cast<float>(attention));
    metadata.put_number(prefix + "attn_factor", static_cast<float>(attention / usual_attention_factor(rope)));
  }
  if (rope.beta_fast == 32 && rope.beta_slow == 1) return;
  metadata.put_number(prefix + "yarn_beta_fast", static_cast<float>(rope.beta_fast));
  metadata.put_number(prefix + "yarn_beta_slow", static_cast<float>(rope.beta_slow));
  notes.emplace_back("llama.cpp ignores yarn's beta_fast and beta_slow and uses 32 and 1");
}

/// Whether the layers' windows are the ones that a reader of the file assumes.
bool follows_windows(const ModelConfig& config) {
  const std::int64_t window = config.attention.front().window;
  for (std::int64_t l = 0; l < config.layers; ++l)
    if (config.attention[static_cast<std::size_t>(l)].window != (attends_fully(config.family->gguf, l) ? 0 : window))
      return false;
  return true;
}

/// Tokens that end an answer in addition to the vocabulary's end token, from generation_config.json or else
/// config.json.
std::vector<std::int32_t> ends_beside(const SpecialTokenSource& from, std::optional<std::int32_t> eos) {
  const auto given = from.generation.find("eos_token_id");
  const bool is_given = given != from.generation.end() && !given->is_null();
  Json ids = is_given ? *given : Json(from.config.eos_token_ids);
  if (!ids.is_array()) ids = Json::array({ids});
  std::vector<std::int32_t> ends;
  for (const Json& id : ids)
    if (id.is_number_integer() && id >= 0 && id < from.tokenizer.size() && id != eos.value_or(-1) &&
        std::ranges::find(ends, id.get<std::int32_t>()) == ends.end())
      ends.push_back(id.get<std::int32_t>());
  return ends;
}

/// Tokens that end an answer in addition to the end token, by the keys that llama.cpp reads.
struct MoreEnds {
  std::optional<std::int32_t> turn, message;  ///< "eot"; "eom", which ends a message with a tool call
  std::vector<std::int32_t> others;           ///< tokens without a key
};

// llama.cpp recognizes these by their texts if a file does not name them.
constexpr std::array<std::string_view, 8> kTurnEnds{"<|eot_id|>",         "<|im_end|>", "<|end|>", "<end_of_turn>",
                                                    "<end_of_utterance>", "<turn|>",    "<EOT>",   "[EOT]"};
constexpr std::array<std::string_view, 1> kMessageEnds{"<|eom_id|>"};

MoreEnds sorted_ends(const Tokenizer& tokenizer, std::vector<std::int32_t> ends) {
  MoreEnds sorted;
  const auto take = [&](std::optional<std::int32_t>& into, const auto& fits) {
    const auto found = std::ranges::find_if(ends, fits);
    if (into || found == ends.end()) return;
    into = *found;
    ends.erase(found);
  };
  const auto is_one_of = [&](std::span<const std::string_view> texts) {
    return
        [&tokenizer, texts](std::int32_t id) { return std::ranges::find(texts, tokenizer.token(id)) != texts.end(); };
  };
  const auto any = [](std::int32_t) { return true; };
  take(sorted.message, is_one_of(kMessageEnds));
  take(sorted.turn, is_one_of(kTurnEnds));
  take(sorted.turn, any);
  take(sorted.message, any);
  sorted.others = std::move(ends);
  return sorted;
}

std::string note_of_ends(const Tokenizer& tokenizer, const std::vector<std::int32_t>& others) {
  std::vector<std::string> texts;
  for (const std::int32_t id : others) texts.push_back(tokenizer.token(id));
  return fmt::format(
      "GGUF stores at most three tokens that end an answer, but the model has more: set {} as a stop string in "
      "programs "
      "that use the file, unless they already stop there",
      fmt::join(texts, ", "));
}

}  // namespace

void require_expressible(const ModelConfig& config, const std::string& place) {
  const GgufFamily& gguf = config.family->gguf;
  if (gguf.architecture.empty())
    fail(ErrorKind::input, {.cause = fmt::format("models of type \"{}\" cannot be exported yet", config.model_type),
                            .place = place,
                            .remedy = "convert the Hugging Face folder with llama.cpp's convert_hf_to_gguf.py"});
  if (config.json.value(config.family->activation_key, config.family->activation) != config.family->activation)
    refuse_key(place, config.family->activation_key);
  const auto slides = [](const LayerAttention& layer) { return layer.window > 0; };
  if (gguf.window > 0 && std::ranges::none_of(config.attention, slides)) refuse_key(place, "sliding_window: null");
  if (!follows_windows(config)) refuse_key(place, gguf.full_attention_every > 0 ? "layer_types" : "max_window_layers");
  if (config.ropes.front().type == Rope::llama3 && !gguf.reads_rope_divisors) refuse_key(place, "rope_type: llama3");
  if (config.ropes.front().type == Rope::dynamic) refuse_key(place, "rope_type: dynamic");
  if (config.ropes.front().type == Rope::yarn && !config.ropes.front().truncate) refuse_key(place, "truncate: false");
  if (config.mlp_bias) refuse_key(place, "mlp_bias");
  if (const char* key = gguf.inexpressible ? gguf.inexpressible(config) : nullptr) refuse_key(place, key);
}

void put_model(GgufMetadata& metadata, const ModelConfig& config, std::vector<std::string>& notes) {
  const GgufFamily& gguf = config.family->gguf;
  const auto prefix = std::string(gguf.architecture) + ".";
  metadata.put_integer(prefix + "block_count", u32(config.layers));
  metadata.put_integer(prefix + "context_length", u32(config.max_position_embeddings));
  metadata.put_integer(prefix + "embedding_length", u32(config.hidden_size));
  metadata.put_integer(prefix + "feed_forward_length", u32(config.intermediate_size));
  metadata.put_integer(prefix + "attention.head_count", u32(config.heads));
  metadata.put_integer(prefix + "attention.head_count_kv", u32(config.kv_heads));
  metadata.put_integer(prefix + "attention.key_length", u32(config.head_dim));
  metadata.put_integer(prefix + "attention.value_length", u32(config.head_dim));
  metadata.put_number(prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(config.rms_norm_eps));
  metadata.put_integer(prefix + "vocab_size", u32(config.vocab_size));
  metadata.put_integer(prefix + "rope.dimension_count", u32(config.head_dim));
  metadata.put_number(prefix + "rope.freq_base", static_cast<float>(config.ropes.front().theta));
  put_rope_scaling(metadata, config, notes);
  for (const GgufKey& key : gguf.keys) {
    if (key.kind == GgufKey::Kind::integer)
      metadata.put_integer(prefix + std::string(key.gguf), u32(std::llround(key.value(config))));
    else if (key.value(config) != 0)
      metadata.put_number(prefix + std::string(key.gguf), static_cast<float>(key.value(config)));
  }
  const std::int64_t window = config.attention.front().window;
  if (window == 0) return;
  metadata.put_integer(prefix + "attention.sliding_window", u32(window));
  if (gguf.full_attention_every == 0)
    notes.push_back(fmt::format("llama.cpp ignores the sliding window: answers differ beyond {} tokens", window));
}

std::vector<float> rope_divisors(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.type != Rope::llama3) return {};
  RopeConfig plain = rope;
  plain.type = Rope::standard;
  const auto before = rope_frequencies(plain, config.head_dim, 1).inv_freq,
             after = rope_frequencies(rope, config.head_dim, 1).inv_freq;
  std::vector<float> divisors;
  for (std::size_t i = 0; i < before.size(); ++i) divisors.push_back(static_cast<float>(before[i] / after[i]));
  return divisors;
}

void put_special_tokens(GgufMetadata& metadata, const SpecialTokenSource& from, std::vector<std::string>& notes) {
  const auto& special = from.tokenizer.special();
  const auto& eos_ids = from.config.eos_token_ids;
  const auto put = [&](const char* name, std::optional<std::int32_t> id, std::optional<std::int32_t> otherwise) {
    if (!id) id = otherwise;
    if (id && *id >= 0) metadata.put_integer(fmt::format("tokenizer.ggml.{}_token_id", name), u32(*id));
    return id;
  };
  const auto first_eos = eos_ids.empty() ? std::nullopt : std::optional(eos_ids.front());
  put("bos", special.bos_id, from.config.bos_token_id);
  const auto eos = put("eos", special.eos_id, first_eos);
  put("unknown", special.unk_id, {});
  put("padding", special.pad_id, from.config.pad_token_id);
  metadata.put_flag("tokenizer.ggml.add_bos_token", special.add_bos);
  metadata.put_flag("tokenizer.ggml.add_eos_token", special.add_eos);
  const MoreEnds ends = sorted_ends(from.tokenizer, ends_beside(from, eos));
  put("eot", ends.turn, {});
  put("eom", ends.message, {});
  if (!ends.others.empty()) notes.push_back(note_of_ends(from.tokenizer, ends.others));
}

void put_templates(GgufMetadata& metadata, const std::filesystem::path& folder) {
  std::vector<std::string> others;
  for (const auto& [name, source] : chat_template_sources(folder)) {
    metadata.put_text(name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name, source);
    if (name != "default") others.push_back(name);
  }
  if (!others.empty()) metadata.put_texts("tokenizer.chat_templates", others);
}

}  // namespace qtrain
