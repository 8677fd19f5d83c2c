#include "convert/gguf/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "model/families/family.h"

namespace qtrain {
namespace {

/// A size small enough that a product of three cannot overflow.
std::int64_t model_size(const GgufFile& file, const std::string& key) {
  const auto size = file.integer(key);
  if (size < 1 || size > (1 << 20))
    refuse_gguf(file, fmt::format("{} is {}, which is not a plausible size", key, size));
  return size;
}

double positive_or(const GgufFile& file, const std::string& key, double fallback) {
  const double value = file.number_or(key, fallback);
  if (!(value > 0) || std::isinf(value))
    refuse_gguf(file, fmt::format("{} is {}, but must be a positive number", key, value));
  return value;
}

/// Metadata that every model has.
struct GgufModel {
  const Family* family = nullptr;
  std::string prefix;  ///< prefix of its keys
  std::int64_t hidden = 0, ffn = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0, context = 0;
  std::int64_t sliding_window = 0;  ///< 0 if none
};

const Family& family_of(const GgufFile& file) {
  const std::string architecture = file.text("general.architecture");
  const Family* other = nullptr;
  std::vector<std::string_view> known;
  for (const Family* f : families()) {
    if (f->gguf.architecture.empty()) continue;
    if (f->gguf.architecture != architecture) {
      if (std::ranges::find(known, f->gguf.architecture) == known.end()) known.push_back(f->gguf.architecture);
      continue;
    }
    if (!f->gguf.holds) other = f;
    if (f->gguf.holds && f->gguf.holds(file)) return *f;
  }
  if (other) return *other;
  fail(ErrorKind::input, {.cause = fmt::format("architecture \"{}\" is not supported", architecture),
                          .place = file.path().string(),
                          .remedy = fmt::format("supported architectures are {}", fmt::join(known, ", "))});
}

struct Llama3Scaling {
  double theta, factor, original;
  double low = 1, high = 4;
};

/// Rotations of each pair of a head within the original context.
std::vector<double> turns_of(const GgufModel& model, const Llama3Scaling& scaling) {
  std::vector<double> turns;
  for (std::int64_t i = 0; i < model.head_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim);
    turns.push_back(scaling.original / (2 * std::numbers::pi * std::pow(scaling.theta, exponent)));
  }
  return turns;
}

/// Divisors of the inverse frequencies that are equivalent to Llama 3.1's rope scaling, one per pair.
std::vector<double> llama3_divisors(const GgufModel& model, const Llama3Scaling& scaling) {
  std::vector<double> divisors;
  for (const double turns : turns_of(model, scaling)) {
    const double smooth = std::clamp((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0);
    divisors.push_back(1 / ((1 - smooth) / scaling.factor + smooth));
  }
  return divisors;
}

/// Recovers the two frequency limits: between them, 1 / divisor is linear in the turns, so the two pairs farthest apart
/// on that line give the limits, rounded to thousandths. Keeps the defaults if there are fewer than two such pairs.
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

/// Recovers the parameters of llama3 rope scaling from the divisors in rope_freqs.weight, and checks them.
Json llama3_scaling(const GgufFile& file, const GgufModel& model, double theta) {
  const auto& tensor = file.tensor("rope_freqs.weight");
  if (tensor.type != GgufType::f32 || tensor.numel() != model.head_dim / 2)
    refuse_gguf(file, "rope_freqs.weight does not have one f32 per pair of a head");
  std::vector<float> given(static_cast<std::size_t>(tensor.numel()));
  std::copy(tensor.data.begin(), tensor.data.end(), std::as_writable_bytes(std::span(given)).begin());
  const auto original = file.integer_or(model.prefix + "rope.scaling.original_context_length", 8192);
  Llama3Scaling scaling{.theta = theta,
                        .factor = *std::max_element(given.begin(), given.end()),
                        .original = static_cast<double>(original)};
  find_limits(model, given, scaling);
  const auto expected = llama3_divisors(model, scaling);
  for (std::size_t i = 0; i < given.size(); ++i)
    if (!(std::abs(given[i] - expected[i]) <= 1e-4 * expected[i]))
      refuse_gguf(file,
                  fmt::format("rope_freqs.weight is not a llama3 rope scaling of a context of {}, and no other kind is "
                              "supported",
                              original));
  return {{"factor", scaling.factor},
          {"high_freq_factor", scaling.high},
          {"low_freq_factor", scaling.low},
          {"original_max_position_embeddings", original},
          {"rope_type", "llama3"}};
}

Json rope_scaling(const GgufFile& file, const GgufModel& model, double theta) {
  if (file.tensors().contains("rope_freqs.weight")) return llama3_scaling(file, model, theta);
  const auto prefix = model.prefix + "rope.scaling.";
  const auto type = file.find(prefix + "type") ? file.text(prefix + "type") : "none";
  const double factor = positive_or(file, prefix + "factor", positive_or(file, model.prefix + "rope.scale_linear", 1));
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
  // attn_factor multiplies the default scale of cos and sin.
  if (const double more = positive_or(file, prefix + "attn_factor", 1);
      more != 1 && !scaling.contains("attention_factor"))
    scaling["attention_factor"] = more * (1 + 0.1 * std::log(factor));
  return scaling;
}

void put_token(Json& config, const GgufFile& file, const std::string& name) {
  const auto key = "tokenizer.ggml." + (name == "pad" ? std::string("padding") : name) + "_token_id";
  if (file.find(key)) config[name + "_token_id"] = file.integer(key);
}

/// The tokens that end an answer, without duplicates: of a text, of a turn, and of a message with a tool call.
Json end_tokens(const GgufFile& file) {
  const auto tokens = static_cast<std::int64_t>(file.array("tokenizer.ggml.tokens").size());
  Json ends = Json::array();
  for (const char* name : {"eos", "eot", "eom"}) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (!file.find(key)) continue;
    const std::int64_t id = file.integer(key);
    if (id >= tokens) refuse_gguf(file, fmt::format("{} is {}, but there are {} tokens", key, id, tokens));
    if (std::ranges::find(ends, Json(id)) == ends.end()) ends.push_back(id);
  }
  return ends;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Refuses sliding windows and rotary bases of layers that differ from the family's.
void check_windows(const GgufFile& file, const GgufModel& m) {
  const auto refuse = [&](const std::string& key) {
    refuse_gguf(file, fmt::format("{} differs from that of the supported {} models", key, m.family->gguf.architecture));
  };
  const GgufFamily& family = m.family->gguf;
  const std::string pattern = m.prefix + "attention.sliding_window_pattern", base = m.prefix + "rope.freq_base_swa";
  if (const Json* given = file.find(pattern)) {
    Json slides = Json::array();
    for (std::int64_t l = 0; l < m.layers; ++l) slides.push_back(m.sliding_window > 0 && !attends_fully(family, l));
    if (given->is_array() ? *given != slides : *given != family.full_attention_every) refuse(pattern);
  }
  const bool known =
      std::ranges::any_of(family.keys, [](const GgufKey& key) { return key.gguf == "rope.freq_base_swa"; });
  if (file.find(base) && !known && file.number_or(base, 0) != file.number_or(m.prefix + "rope.freq_base", 10000))
    refuse(base);
}

GgufModel gguf_model(const GgufFile& file) {
  GgufModel m{.family = &family_of(file)};
  m.prefix = std::string(m.family->gguf.architecture) + ".";
  const auto has_experts = [](const GgufKey& key) { return key.gguf == "expert_count"; };
  if (file.integer_or(m.prefix + "expert_count", 0) > 0 && std::ranges::none_of(m.family->gguf.keys, has_experts))
    refuse_gguf(
        file, fmt::format("models of the architecture {} with experts are not supported", m.family->gguf.architecture));
  const auto size = [&](const char* key) { return model_size(file, m.prefix + key); };
  m.hidden = size("embedding_length");
  m.ffn = size("feed_forward_length");
  m.layers = size("block_count");
  if (m.layers > static_cast<std::int64_t>(file.tensors().size()))
    refuse_gguf(file,
                fmt::format("the model has {} layers, but the file only {} tensors", m.layers, file.tensors().size()));
  m.heads = size("attention.head_count");
  m.kv_heads = file.find(m.prefix + "attention.head_count_kv") ? size("attention.head_count_kv") : m.heads;
  m.context = file.integer(m.prefix + "context_length");
  m.sliding_window = file.integer_or(m.prefix + "attention.sliding_window", m.family->gguf.window);
  if (m.heads % m.kv_heads != 0)
    refuse_gguf(file, fmt::format("{} attention heads cannot share {} key-value heads", m.heads, m.kv_heads));
  const auto key_length = m.prefix + "attention.key_length";
  m.head_dim = file.find(key_length) ? model_size(file, key_length) : m.hidden / m.heads;
  if (file.integer_or(m.prefix + "attention.value_length", m.head_dim) != m.head_dim)
    refuse_gguf(file, "keys and values of different lengths are not supported");
  if (m.head_dim < 2 || m.head_dim % 2 != 0 ||
      file.integer_or(m.prefix + "rope.dimension_count", m.head_dim) != m.head_dim)
    refuse_gguf(file, "a rotary embedding of only a part of each head is not supported");
  m.vocab = file.tensor("token_embd.weight").shape[0];
  check_windows(file, m);
  return m;
}

void put_windows(Json& config, const GgufModel& m) {
  config["sliding_window"] = m.sliding_window > 0 ? Json(m.sliding_window) : Json(nullptr);
  if (m.family->gguf.full_attention_every == 0) return;
  Json types = Json::array();
  for (std::int64_t l = 0; l < m.layers; ++l)
    types.push_back(attends_fully(m.family->gguf, l) ? "full_attention" : "sliding_attention");
  config["layer_types"] = std::move(types);
}

void put_keys(Json& config, const GgufFile& file, const GgufModel& m) {
  for (const GgufKey& key : m.family->gguf.keys) {
    const std::string name = m.prefix + std::string(key.gguf);
    if (key.kind == GgufKey::Kind::integer)
      config[key.json] = model_size(file, name);
    else if (file.find(name))
      config[key.json] = positive_or(file, name, 1);
  }
}

/// Adds the tensors of a folder that one tensor of the file contains.
void add_tensors(std::vector<ImportedTensor>& tensors, GgufWeight& weight, const GgufTensor& source) {
  const auto shape = weight.shape_of_one();
  std::int64_t row = 0;
  for (std::string& name : weight.names) {
    tensors.push_back({.name = std::move(name),
                       .source = &source,
                       .shape = shape,
                       .first_row = row,
                       .rows = rows_of(weight),
                       .offset = weight.offset});
    row += tensors.back().height();
  }
}

}  // namespace

void refuse_gguf(const GgufFile& file, std::string cause) {
  fail(ErrorKind::input, {.cause = std::move(cause), .place = file.path().string()});
}

std::vector<ImportedTensor> gguf_weights(const GgufFile& file, const ModelConfig& config) {
  // Checked before names are generated from the file's numbers: with experts, one tensor has many names.
  const auto a_layer = static_cast<std::int64_t>(config.family->layer(config, 0).order.size());
  if (config.layers * a_layer > 2 * static_cast<std::int64_t>(file.tensors().size()))
    refuse_gguf(file, fmt::format("the model has {} layers of {} tensors, but the file only {} tensors", config.layers,
                                  a_layer, file.tensors().size()));
  std::vector<ImportedTensor> tensors;
  std::set<std::string> used{"rope_freqs.weight"};
  for (GgufWeight& weight : gguf_layout(config)) {
    const auto& source = file.tensor(weight.gguf);
    if (source.shape != weight.shape)
      refuse_gguf(file, fmt::format("tensor \"{}\" has shape {}, expected {}", weight.gguf, shape_text(source.shape),
                                    shape_text(weight.shape)));
    if (weight.rotary_heads > 0 && source.shape.size() == 1 && gguf_block(source.type)->values != 1)
      refuse_gguf(file,
                  fmt::format("tensor \"{}\" is a vector of the quantized type {}", weight.gguf, name_of(source.type)));
    used.insert(weight.gguf);
    add_tensors(tensors, weight, source);
  }
  for (const auto& [name, tensor] : file.tensors())
    if (!used.contains(name))
      refuse_gguf(file, fmt::format("tensor \"{}\" does not belong to a {} model of {} layers", name,
                                    config.family->gguf.architecture, config.layers));
  return tensors;
}

Json gguf_config(const GgufFile& file) {
  const GgufModel model = gguf_model(file);
  const Family& family = *model.family;
  const double theta = positive_or(file, model.prefix + "rope.freq_base", 10000);
  Json config{{"architectures", {family.architecture}}, {"model_type", family.model_type}};
  put_token(config, file, "bos");
  put_token(config, file, "eos");
  put_token(config, file, "pad");
  for (const char* id : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (!config.contains(id)) config[id] = nullptr;  // some families have a default if config.json has none
  config["vocab_size"] = model.vocab;
  config["hidden_size"] = model.hidden;
  config["intermediate_size"] = model.ffn;
  config["num_hidden_layers"] = model.layers;
  config["num_attention_heads"] = model.heads;
  config["num_key_value_heads"] = model.kv_heads;
  config["head_dim"] = model.head_dim;
  config[family.activation_key] = family.activation;
  config["max_position_embeddings"] = model.context;
  config["rms_norm_eps"] = positive_or(file, model.prefix + "attention.layer_norm_rms_epsilon", 1e-6);
  config["rope_theta"] = theta;
  config["rope_scaling"] = rope_scaling(file, model, theta);
  config["attention_bias"] = file.tensors().contains("blk.0.attn_q.bias");
  put_windows(config, model);
  put_keys(config, file, model);
  if (family.gguf.assume) family.gguf.assume(config);
  config["attention_dropout"] = 0.0;
  config["initializer_range"] = 0.02;
  config["tie_word_embeddings"] = !file.tensors().contains("output.weight");
  config["use_cache"] = true;
  return config;
}

ModelConfig gguf_model_config(const GgufFile& file, const Json& config) {
  return parse_model_config(config, file.path().string() + " as a config.json");
}

Json gguf_generation_config(const GgufFile& file) {
  Json config = Json::object();
  put_token(config, file, "bos");
  put_token(config, file, "eos");
  put_token(config, file, "pad");
  const Json ends = end_tokens(file);
  if (!ends.empty()) config["eos_token_id"] = ends.size() == 1 ? ends[0] : ends;
  return config;
}

}  // namespace qtrain
