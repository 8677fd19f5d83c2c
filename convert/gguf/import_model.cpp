#include "convert/gguf/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace qtrain {
namespace {

/// A size that products of three cannot overflow.
std::int64_t model_size(const GgufFile& file, const std::string& key) {
  const auto size = file.integer(key);
  if (size < 1 || size > (1 << 20)) refuse_gguf(file, fmt::format("{} is {}, which is no sensible size", key, size));
  return size;
}

double positive_or(const GgufFile& file, const std::string& key, double fallback) {
  const double value = file.number_or(key, fallback);
  if (!(value > 0) || std::isinf(value)) refuse_gguf(file, fmt::format("{} is {}, not a positive number", key, value));
  return value;
}

struct Architecture {
  std::string_view gguf, model_type, class_name;
};
constexpr Architecture kArchitectures[] = {{"llama", "llama", "LlamaForCausalLM"},
                                           {"qwen2", "qwen2", "Qwen2ForCausalLM"},
                                           {"qwen3", "qwen3", "Qwen3ForCausalLM"}};
constexpr Architecture kMistral{"llama", "mistral", "MistralForCausalLM"};

const Architecture& architecture_of(const GgufModel& model) {
  if (model.architecture == "llama" && model.sliding_window > 0) return kMistral;
  return *std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                       [&](auto& a) { return a.gguf == model.architecture; });
}

struct Llama3Scaling {
  double theta, factor, original;
  double low = 1, high = 4;
};

/// How often a head turns within the original context, by pair.
std::vector<double> turns_of(const GgufModel& model, const Llama3Scaling& scaling) {
  std::vector<double> turns;
  for (std::int64_t i = 0; i < model.head_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim);
    turns.push_back(scaling.original / (2 * std::numbers::pi * std::pow(scaling.theta, exponent)));
  }
  return turns;
}

/// The divisors of the inverse frequencies that Llama 3.1's rope scaling stands for, one per pair.
std::vector<double> llama3_divisors(const GgufModel& model, const Llama3Scaling& scaling) {
  std::vector<double> divisors;
  for (const double turns : turns_of(model, scaling)) {
    const double smooth = std::clamp((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0);
    divisors.push_back(1 / ((1 - smooth) / scaling.factor + smooth));
  }
  return divisors;
}

/// Between the two limits 1 / divisor is a line over the turns: the limits from the two pairs farthest apart on it,
/// to a thousandth. Where there are no two, the usual ones.
void find_limits(const GgufModel& model, std::span<const float> divisors, Llama3Scaling& scaling) {
  constexpr double kEdge = 1e-4, kSteps = 1000;
  struct Point {
    double turns, smooth;
  };
  std::vector<Point> line;
  const std::vector<double> turns = turns_of(model, scaling);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const double smooth = (1 / divisors[i] - 1 / scaling.factor) / (1 - 1 / scaling.factor);
    if (smooth > kEdge && smooth < 1 - kEdge) line.push_back({turns[i], smooth});
  }
  if (line.size() < 2) return;
  const Point &first = line.front(), &last = line.back();
  const double width = (first.turns - last.turns) / (first.smooth - last.smooth);
  const double low = first.turns - first.smooth * width;
  scaling.low = std::round(low * kSteps) / kSteps;
  scaling.high = std::round((low + width) * kSteps) / kSteps;
}

/// rope_freqs.weight holds divisors only; the parameters they came from are found again and proved.
Json llama3_scaling(const GgufFile& file, const GgufModel& model, double theta) {
  const auto& tensor = file.tensor("rope_freqs.weight");
  if (tensor.type != GgufType::f32 || tensor.numel() != model.head_dim / 2)
    refuse_gguf(file, "rope_freqs.weight does not have one f32 per pair of a head");
  std::vector<float> given(static_cast<std::size_t>(tensor.numel()));
  std::copy(tensor.data.begin(), tensor.data.end(), std::as_writable_bytes(std::span(given)).begin());
  const auto original = file.integer_or(model.architecture + ".rope.scaling.original_context_length", 8192);
  Llama3Scaling scaling{.theta = theta,
                        .factor = *std::max_element(given.begin(), given.end()),
                        .original = static_cast<double>(original)};
  find_limits(model, given, scaling);
  const auto expected = llama3_divisors(model, scaling);
  for (std::size_t i = 0; i < given.size(); ++i)
    if (!(std::abs(given[i] - expected[i]) <= 1e-4 * expected[i]))
      refuse_gguf(file, fmt::format("rope_freqs.weight is no llama3 rope scaling of a context of {}, and no other is "
                                    "known",
                                    original));
  return {{"factor", scaling.factor},
          {"high_freq_factor", scaling.high},
          {"low_freq_factor", scaling.low},
          {"original_max_position_embeddings", original},
          {"rope_type", "llama3"}};
}

Json rope_scaling(const GgufFile& file, const GgufModel& model, double theta) {
  if (file.tensors().contains("rope_freqs.weight")) return llama3_scaling(file, model, theta);
  const auto prefix = model.architecture + ".rope.scaling.";
  const auto type = file.find(prefix + "type") ? file.text(prefix + "type") : "none";
  const double factor =
      positive_or(file, prefix + "factor", positive_or(file, model.architecture + ".rope.scale_linear", 1));
  if (type == "none" && factor == 1) return nullptr;
  if (type == "linear" || type == "none")
    return factor == 1 ? Json(nullptr) : Json{{"factor", factor}, {"rope_type", "linear"}};
  if (type != "yarn") refuse_gguf(file, fmt::format("rope scaling \"{}\" is not supported", type));
  Json scaling{{"factor", factor}, {"rope_type", "yarn"}};
  if (file.find(prefix + "original_context_length"))
    scaling["original_max_position_embeddings"] = file.integer(prefix + "original_context_length");
  for (const auto& [gguf, name] : {std::pair{"yarn_attn_factor", "attention_factor"},
                                   {"yarn_beta_fast", "beta_fast"},
                                   {"yarn_beta_slow", "beta_slow"}})
    if (file.find(prefix + gguf)) scaling[name] = positive_or(file, prefix + gguf, 1);
  // The other factor multiplies what cos and sin are scaled by anyway.
  if (const double more = positive_or(file, prefix + "attn_factor", 1);
      more != 1 && !scaling.contains("attention_factor"))
    scaling["attention_factor"] = more * (1 + 0.1 * std::log(factor));
  return scaling;
}

void put_token(Json& config, const GgufFile& file, const std::string& name) {
  const auto key = "tokenizer.ggml." + (name == "pad" ? std::string("padding") : name) + "_token_id";
  if (file.find(key)) config[name + "_token_id"] = file.integer(key);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

void refuse_gguf(const GgufFile& file, std::string cause) {
  fail(ErrorKind::input, {.cause = std::move(cause), .place = file.path().string()});
}

GgufModel gguf_model(const GgufFile& file) {
  GgufModel m{.architecture = file.text("general.architecture")};
  const auto known = [&](auto& a) { return a.gguf == m.architecture; };
  if (std::none_of(std::begin(kArchitectures), std::end(kArchitectures), known))
    fail(ErrorKind::input, {.cause = fmt::format("architecture \"{}\" is not supported", m.architecture),
                            .place = file.path().string(),
                            .remedy = "supported are llama (also Mistral), qwen2 and qwen3"});
  const auto prefix = m.architecture + ".";
  if (file.integer_or(prefix + "expert_count", 0) > 0) refuse_gguf(file, "models with experts are not supported");
  const auto size = [&](const char* key) { return model_size(file, prefix + key); };
  m.hidden = size("embedding_length");
  m.ffn = size("feed_forward_length");
  m.layers = size("block_count");
  m.heads = size("attention.head_count");
  m.kv_heads = file.find(prefix + "attention.head_count_kv") ? size("attention.head_count_kv") : m.heads;
  m.context = file.integer(prefix + "context_length");
  m.sliding_window = file.integer_or(prefix + "attention.sliding_window", 0);
  if (m.heads % m.kv_heads != 0)
    refuse_gguf(file, fmt::format("{} heads cannot share {} key-value heads", m.heads, m.kv_heads));
  const auto key_length = prefix + "attention.key_length";
  m.head_dim = file.find(key_length) ? model_size(file, key_length) : m.hidden / m.heads;
  if (file.integer_or(prefix + "attention.value_length", m.head_dim) != m.head_dim)
    refuse_gguf(file, "keys and values of different lengths are not supported");
  if (m.head_dim < 2 || m.head_dim % 2 != 0 ||
      file.integer_or(prefix + "rope.dimension_count", m.head_dim) != m.head_dim)
    refuse_gguf(file, "a rotary embedding of only a part of each head is not supported");
  m.vocab = file.tensor("token_embd.weight").shape[0];
  m.tied = !file.tensors().contains("output.weight");
  m.attention_bias = m.architecture != "qwen2" && file.tensors().contains("blk.0.attn_q.bias");
  return m;
}

std::vector<ImportedTensor> gguf_weights(const GgufFile& file, const GgufModel& model) {
  if (model.layers > static_cast<std::int64_t>(file.tensors().size()))
    refuse_gguf(file, fmt::format("{} layers, but only {} tensors", model.layers, file.tensors().size()));
  std::vector<ImportedTensor> tensors;
  std::set<std::string> used{"rope_freqs.weight"};
  for (auto& weight : gguf_layout(model)) {
    const auto& source = file.tensor(weight.gguf);
    if (source.shape != weight.shape)
      refuse_gguf(file, fmt::format("tensor \"{}\" has shape {} where {} was expected", weight.gguf,
                                    shape_text(source.shape), shape_text(weight.shape)));
    if (weight.rotary_heads > 0 && source.shape.size() == 1 && gguf_block(source.type)->values != 1)
      refuse_gguf(file, fmt::format("tensor \"{}\" is a vector of type {}", weight.gguf, name_of(source.type)));
    used.insert(weight.gguf);
    tensors.push_back({std::move(weight.name), &source, {weight.rotary_heads > 0 ? model.head_dim : 0}});
  }
  for (const auto& [name, tensor] : file.tensors())
    if (!used.contains(name))
      refuse_gguf(file, fmt::format("tensor \"{}\" has no place in a {} model of {} layers", name, model.architecture,
                                    model.layers));
  return tensors;
}

Json gguf_config(const GgufFile& file, const GgufModel& model, DType dtype) {
  const auto prefix = model.architecture + ".";
  const auto& kind = architecture_of(model);
  const double theta = positive_or(file, prefix + "rope.freq_base", 10000);
  Json config{{"architectures", {kind.class_name}}, {"model_type", kind.model_type}};
  put_token(config, file, "bos");
  put_token(config, file, "eos");
  put_token(config, file, "pad");
  config["vocab_size"] = model.vocab;
  config["hidden_size"] = model.hidden;
  config["intermediate_size"] = model.ffn;
  config["num_hidden_layers"] = model.layers;
  config["num_attention_heads"] = model.heads;
  config["num_key_value_heads"] = model.kv_heads;
  config["head_dim"] = model.head_dim;
  config["hidden_act"] = "silu";
  config["max_position_embeddings"] = model.context;
  config["rms_norm_eps"] = positive_or(file, prefix + "attention.layer_norm_rms_epsilon", 1e-6);
  config["rope_theta"] = theta;
  config["rope_scaling"] = rope_scaling(file, model, theta);
  if (model.architecture != "qwen2") config["attention_bias"] = model.attention_bias;
  if (kind.model_type == "llama") config["mlp_bias"] = false;
  if (model.architecture != "llama") config["use_sliding_window"] = model.sliding_window > 0;
  if (model.architecture != "llama" && model.sliding_window > 0) config["max_window_layers"] = 0;
  if (kind.model_type != "llama")
    config["sliding_window"] = model.sliding_window > 0 ? Json(model.sliding_window) : Json(nullptr);
  config["attention_dropout"] = 0.0;
  config["initializer_range"] = 0.02;
  config["tie_word_embeddings"] = model.tied;
  config["torch_dtype"] = name_of(dtype);
  config["use_cache"] = true;
  return config;
}

Json gguf_generation_config(const GgufFile& file) {
  Json config = Json::object();
  put_token(config, file, "bos");
  put_token(config, file, "eos");
  put_token(config, file, "pad");
  // A turn may end with a token of its own.
  const auto* turn = file.find("tokenizer.ggml.eot_token_id");
  if (turn != nullptr && config.contains("eos_token_id") && *turn != config["eos_token_id"])
    config["eos_token_id"] = Json::array({config["eos_token_id"], *turn});
  return config;
}

}  // namespace qtrain
