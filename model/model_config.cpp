#include "model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/config_reader.h"
#include "model/families/family.h"
#include "quant/mxfp4.h"

namespace qtrain {
namespace {

const Family& family_of(const ConfigReader& r) {
  const std::string type = r.text("model_type", "");
  std::string known;
  for (const Family* f : families()) {
    if (f->model_type == type) return *f;
    known += (known.empty() ? "" : ", ") + std::string(f->model_type);
  }
  r.refuse(fmt::format("model_type \"{}\" is not supported", type), "supported: " + known);
}

RopeConfig::Type rope_type(const ConfigReader& r, const std::string& type) {
  using Type = RopeConfig::Type;
  constexpr std::pair<std::string_view, Type> kTypes[] = {{"default", Type::standard}, {"linear", Type::linear},
                                                          {"dynamic", Type::dynamic},  {"llama3", Type::llama3},
                                                          {"yarn", Type::yarn},        {"longrope", Type::longrope}};
  for (const auto& [known, value] : kTypes)
    if (known == type) return value;
  r.refuse(fmt::format("\"rope_type\" \"{}\" is not supported", type),
           "supported: default, linear, dynamic, llama3, yarn, longrope");
}

// The table of rotary parameters, which version 5 calls rope_parameters and version 4 rope_scaling.
const char* rope_key(const ConfigReader& r) {
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (const Json* v = r.get(key)) {
      if (!v->is_object()) r.refuse(fmt::format("\"{}\" must be an object, not {}", key, v->dump()));
      for (const auto& [inner, value] : v->items())
        if (value.is_object())
          r.refuse(fmt::format("\"{}\" for each kind of layer (\"{}\") is not supported", key, inner));
      return key;
    }
  return nullptr;
}

// transformers computes dynamic NTK from max_position_embeddings whatever the original length says; for the other types
// a length outside the table wins over one inside.
void read_original_length(const ConfigReader& r, const ConfigReader& table, const Family& family, RopeConfig& rope) {
  using Type = RopeConfig::Type;
  if (rope.type != Type::llama3 && rope.type != Type::yarn && rope.type != Type::longrope) return;
  constexpr const char* kKey = "original_max_position_embeddings";
  if (family.original_positions > 0) {
    rope.original_max_position = r.magnitude(kKey, family.original_positions);
    return;
  }
  rope.original_max_position = r.magnitude(kKey, table.magnitude(kKey, rope.original_max_position));
}

void read_factor(const ConfigReader& table, const ModelConfig& c, RopeConfig& rope) {
  const bool implied = rope.type == RopeConfig::Type::yarn;
  if (!implied && !table.get("factor")) table.refuse("\"factor\" is missing");
  rope.factor = table.number("factor", static_cast<double>(c.max_position_embeddings) / rope.original_max_position);
  if (!(rope.factor >= 1)) table.refuse(fmt::format("\"factor\" must be at least 1, not {}", rope.factor));
}

void read_yarn(const ConfigReader& table, RopeConfig& rope) {
  rope.beta_fast = table.magnitude("beta_fast", rope.beta_fast);
  rope.beta_slow = table.magnitude("beta_slow", rope.beta_slow);
  rope.truncate = table.flag("truncate", true);
  if (table.get("attention_factor")) rope.attention_factor = table.magnitude("attention_factor", 1);
  if (table.get("mscale")) rope.mscale = table.number("mscale", 1);
  if (table.get("mscale_all_dim")) rope.mscale_all_dim = table.number("mscale_all_dim", 1);
}

// As many factors as frequencies.
std::vector<double> read_factors(const ConfigReader& table, const char* key, std::int64_t count) {
  const Json* list = table.get(key);
  if (!list) table.refuse(fmt::format("\"{}\" is missing", key));
  const auto is_factor = [](const Json& v) { return v.is_number() && v > 0; };
  if (!list->is_array() || static_cast<std::int64_t>(list->size()) != count || !std::ranges::all_of(*list, is_factor))
    table.refuse(fmt::format("\"{}\" must be a list of {} numbers greater than 0", key, count),
                 "one for each pair of elements of a head that is turned");
  return list->get<std::vector<double>>();
}

void read_longrope(const ConfigReader& table, const ModelConfig& c, RopeConfig& rope) {
  rope.factor = table.magnitude("factor", static_cast<double>(c.max_position_embeddings) / rope.original_max_position);
  if (table.get("attention_factor")) rope.attention_factor = table.magnitude("attention_factor", 1);
  if (!rope.attention_factor && rope.factor > 1 && !(rope.original_max_position > 1))
    table.refuse("\"original_max_position_embeddings\" must be greater than 1");
  rope.short_factors = read_factors(table, "short_factor", rope.dims(c.head_dim) / 2);
  rope.long_factors = read_factors(table, "long_factor", rope.dims(c.head_dim) / 2);
}

// The share of a head that is turned, in whole pairs.
void read_partial(const ConfigReader& r, const ModelConfig& c, RopeConfig& rope) {
  const double share = r.magnitude("partial_rotary_factor", rope.partial);
  if (share == rope.partial) return;
  if (!c.family->partial_rotary) r.refuse("\"partial_rotary_factor\" other than 1 is not supported");
  rope.partial = share;
  if (const std::int64_t dims = rope.dims(c.head_dim); share > 1 || dims < 2 || dims % 2 != 0)
    r.refuse(fmt::format("\"partial_rotary_factor\" {} of heads of {} elements is no whole number of pairs", share,
                         c.head_dim));
}

void read_llama3(const ConfigReader& table, RopeConfig& rope) {
  rope.low_freq_factor = table.magnitude("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = table.magnitude("high_freq_factor", rope.high_freq_factor);
  if (!(rope.high_freq_factor > rope.low_freq_factor))
    table.refuse("\"high_freq_factor\" must be greater than \"low_freq_factor\"");
}

RopeConfig read_rope(const ConfigReader& r, const ModelConfig& c) {
  RopeConfig rope;
  rope.theta = r.magnitude("rope_theta", c.family->theta);
  read_partial(r, c, rope);
  rope.original_max_position = static_cast<double>(c.max_position_embeddings);
  const char* key = rope_key(r);
  if (!key) return rope;
  const std::string place = r.name + ": " + key;
  const ConfigReader table{*r.get(key), place};
  rope.theta = table.magnitude("rope_theta", rope.theta);
  std::string type = table.text("rope_type", table.text("type", "default"));
  if (c.family->old_longrope && (type == "su" || type == "yarn")) type = "longrope";
  rope.type = rope_type(table, type);
  read_partial(table, c, rope);
  if (rope.type == RopeConfig::Type::standard) return rope;
  read_original_length(r, table, *c.family, rope);
  if (rope.type == RopeConfig::Type::longrope) {
    read_longrope(table, c, rope);
    return rope;
  }
  read_factor(table, c, rope);
  if (rope.type == RopeConfig::Type::yarn) read_yarn(table, rope);
  if (rope.type == RopeConfig::Type::llama3) read_llama3(table, rope);
  return rope;
}

void read_sizes(const ConfigReader& r, ModelConfig& c) {
  c.hidden_size = r.positive("hidden_size");
  c.intermediate_size = r.positive("intermediate_size");
  c.layers = r.positive("num_hidden_layers");
  c.heads = r.positive("num_attention_heads");
  c.kv_heads = r.positive("num_key_value_heads", c.heads);
  if (!r.get("head_dim") && c.hidden_size % c.heads != 0)
    r.refuse("\"hidden_size\" is not a multiple of \"num_attention_heads\" and \"head_dim\" is missing");
  const std::int64_t head_dim =
      c.family->head_dim > 0 ? c.family->head_dim : std::max<std::int64_t>(1, c.hidden_size / c.heads);
  c.head_dim = r.positive("head_dim", head_dim);
  c.vocab_size = r.positive("vocab_size");
  c.max_position_embeddings = r.positive("max_position_embeddings", c.family->max_positions);
  if (c.heads % c.kv_heads != 0)
    r.refuse(fmt::format("\"num_attention_heads\" ({}) is not a multiple of \"num_key_value_heads\" ({})", c.heads,
                         c.kv_heads));
  if (c.head_dim % 2 != 0) r.refuse("\"head_dim\" must be even");
  if (c.head_dim > 256) r.refuse("\"head_dim\" above 256 is not supported");
  if (c.layers > 10000) r.refuse("\"num_hidden_layers\" is out of range");
}

ops::Activation read_activation(const ConfigReader& r, const Family& family) {
  const char* key = family.activation_key;
  const std::string name = r.text(key, family.activation);
  if (name == "silu" || name == "swish") return ops::Activation::silu;
  if (name == "gelu_pytorch_tanh") return ops::Activation::gelu_tanh;
  r.refuse(fmt::format("{} \"{}\" is not supported", key, name), "supported: silu, gelu_pytorch_tanh");
}

void refuse_unsupported(const ConfigReader& r) {
  if (r.number("attention_dropout", 0) != 0)
    r.refuse("\"attention_dropout\" other than 0 is not supported", "set it to 0.0 in config.json");
}

DType weight_dtype(const ConfigReader& r) {
  const char* key = r.get("dtype") ? "dtype" : "torch_dtype";
  std::string text = r.text(key, "float32");
  if (text.starts_with("torch.")) text.erase(0, 6);
  for (const DType d : {DType::f32, DType::bf16, DType::f16, DType::f64})
    if (text == name_of(d)) return d;
  r.refuse(fmt::format("\"{}\" \"{}\" is not supported", key, text), "supported: float32, bfloat16, float16");
}

std::optional<std::int32_t> first(const std::vector<std::int32_t>& ids) {
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

}  // namespace

ModelConfig parse_model_config(const Json& json, const std::string& name) {
  const ConfigReader r{json, name};
  if (!json.is_object()) r.refuse("a model config must be a JSON object");
  ModelConfig c;
  const Family& family = family_of(r);
  c.family = &family;
  c.model_type = family.model_type;
  c.architecture = family.architecture;
  read_sizes(r, c);
  refuse_unsupported(r);
  c.activation = read_activation(r, family);
  c.rms_norm_eps = r.magnitude("rms_norm_eps", family.norm_eps);
  c.initializer_range = r.number("initializer_range", 0.02);
  c.tie_word_embeddings = r.flag("tie_word_embeddings", family.ties_head);
  c.ropes = {read_rope(r, c)};
  c.dtype = weight_dtype(r);
  const bool mxfp4 = family.mxfp4_experts && is_mxfp4_config(json);
  if (!mxfp4) c.quantization = bnb_config(json, name);
  c.eos_token_ids = r.tokens("eos_token_id");
  c.bos_token_id = first(r.tokens("bos_token_id"));
  c.pad_token_id = first(r.tokens("pad_token_id"));
  c.attention.resize(static_cast<std::size_t>(c.layers));
  family.read(r, c);
  c.json = json;
  if (!mxfp4) return c;
  c.json.erase("quantization_config");  // what is written is dense
  if (!r.get("dtype") && !r.get("torch_dtype")) c.dtype = DType::bf16;
  return c;
}

double ModelConfig::score_scale() const {
  return attention_scale != 0 ? attention_scale : 1 / std::sqrt(static_cast<double>(head_dim));
}

std::int64_t ModelConfig::padding_row() const {
  if (!pad_token_id || *pad_token_id >= vocab_size) return -1;
  return *pad_token_id < 0 ? vocab_size + *pad_token_id : *pad_token_id;
}

ModelConfig load_model_config(const std::filesystem::path& folder_or_file) {
  const auto file = is_directory(folder_or_file) ? folder_or_file / "config.json" : folder_or_file;
  return parse_model_config(read_json(file), file.string());
}

}  // namespace qtrain
