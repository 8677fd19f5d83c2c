#include "model/model_config.h"

#include <fmt/format.h>

#include "model/families/family.h"

namespace qtrain {
namespace {

struct Reader {
  const Json& json;
  const std::string& name;

  [[noreturn]] void refuse(const std::string& cause, const std::string& remedy = {}) const {
    fail(ErrorKind::input, {.cause = cause, .place = name, .remedy = remedy});
  }
  const Json* get(const char* key) const {
    const auto it = json.find(key);
    return it == json.end() || it->is_null() ? nullptr : &*it;
  }
  std::int64_t positive(const char* key, std::optional<std::int64_t> otherwise = {}) const {
    const Json* v = get(key);
    if (!v && otherwise) return *otherwise;
    if (!v) refuse(fmt::format("\"{}\" is missing", key));
    constexpr std::int64_t kMost = std::int64_t{1} << 31;
    if (!v->is_number_integer() || *v < 1 || *v >= kMost)
      refuse(fmt::format("\"{}\" must be a positive integer, not {}", key, v->dump()));
    return v->get<std::int64_t>();
  }
  double number(const char* key, double otherwise) const {
    const Json* v = get(key);
    if (v && !v->is_number()) refuse(fmt::format("\"{}\" must be a number, not {}", key, v->dump()));
    return v ? v->get<double>() : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    const Json* v = get(key);
    if (v && !v->is_boolean()) refuse(fmt::format("\"{}\" must be true or false, not {}", key, v->dump()));
    return v ? v->get<bool>() : otherwise;
  }
  std::string text(const char* key, const std::string& otherwise) const {
    const Json* v = get(key);
    if (v && !v->is_string()) refuse(fmt::format("\"{}\" must be a string, not {}", key, v->dump()));
    return v ? v->get<std::string>() : otherwise;
  }
};

const Family& family_of(const Reader& r) {
  const std::string type = r.text("model_type", "");
  std::string known;
  for (const Family* f : families()) {
    if (f->model_type == type) return *f;
    known += (known.empty() ? "" : ", ") + std::string(f->model_type);
  }
  r.refuse(fmt::format("model_type \"{}\" is not supported", type), "supported: " + known);
}

RopeConfig::Type rope_type(const Reader& r, const std::string& type) {
  using Type = RopeConfig::Type;
  constexpr std::pair<std::string_view, Type> kTypes[] = {{"default", Type::standard}, {"linear", Type::linear},
                                                          {"dynamic", Type::dynamic},  {"llama3", Type::llama3},
                                                          {"yarn", Type::yarn}};
  for (const auto& [known, value] : kTypes)
    if (known == type) return value;
  r.refuse(fmt::format("rope type \"{}\" is not supported", type),
           "supported: default, linear, dynamic, llama3, yarn");
}

RopeConfig read_rope(const Reader& r, const ModelConfig& c) {
  RopeConfig rope;
  rope.theta = r.number("rope_theta", 10000);
  rope.original_max_position = static_cast<double>(c.max_position_embeddings);
  const Json* scaling = r.get("rope_parameters");
  if (!scaling) scaling = r.get("rope_scaling");
  if (!scaling) return rope;
  if (!scaling->is_object()) r.refuse("rope parameters must be an object");
  const std::string place = r.name + ": rope parameters";
  const Reader s{*scaling, place};
  rope.theta = s.number("rope_theta", rope.theta);
  rope.type = rope_type(s, s.text("rope_type", s.text("type", "default")));
  if (s.number("partial_rotary_factor", 1) != 1) s.refuse("\"partial_rotary_factor\" other than 1 is not supported");
  if (rope.type == RopeConfig::Type::standard) return rope;
  if (!s.get("factor")) s.refuse("\"factor\" is missing");
  rope.factor = s.number("factor", 1);
  if (!(rope.factor >= 1)) s.refuse("\"factor\" must be at least 1");
  // transformers computes dynamic NTK from max_position_embeddings whatever the original length says.
  if (rope.type != RopeConfig::Type::dynamic) {
    const double outer = r.number("original_max_position_embeddings", rope.original_max_position);
    rope.original_max_position = s.number("original_max_position_embeddings", outer);
  }
  rope.low_freq_factor = s.number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = s.number("high_freq_factor", rope.high_freq_factor);
  rope.beta_fast = s.number("beta_fast", rope.beta_fast);
  rope.beta_slow = s.number("beta_slow", rope.beta_slow);
  rope.truncate = s.flag("truncate", true);
  if (s.get("attention_factor")) rope.attention_factor = s.number("attention_factor", 1);
  if (s.get("mscale")) rope.mscale = s.number("mscale", 1);
  if (s.get("mscale_all_dim")) rope.mscale_all_dim = s.number("mscale_all_dim", 1);
  if (rope.type == RopeConfig::Type::llama3 && !(rope.high_freq_factor > rope.low_freq_factor))
    s.refuse("\"high_freq_factor\" must be greater than \"low_freq_factor\"");
  return rope;
}

void read_sizes(const Reader& r, ModelConfig& c) {
  c.hidden_size = r.positive("hidden_size");
  c.intermediate_size = r.positive("intermediate_size");
  c.layers = r.positive("num_hidden_layers");
  c.heads = r.positive("num_attention_heads");
  c.kv_heads = r.positive("num_key_value_heads", c.heads);
  if (!r.get("head_dim") && c.hidden_size % c.heads != 0)
    r.refuse("\"hidden_size\" is not a multiple of \"num_attention_heads\" and \"head_dim\" is missing");
  const std::int64_t head_dim = c.model_type == "qwen3" ? 128 : std::max<std::int64_t>(1, c.hidden_size / c.heads);
  c.head_dim = r.positive("head_dim", head_dim);
  c.vocab_size = r.positive("vocab_size");
  c.max_position_embeddings = r.positive("max_position_embeddings", 2048);
  if (c.heads % c.kv_heads != 0)
    r.refuse(fmt::format("{} attention heads are not a multiple of {} key/value heads", c.heads, c.kv_heads));
  if (c.head_dim % 2 != 0) r.refuse("\"head_dim\" must be even");
  if (c.head_dim > 256) r.refuse("\"head_dim\" above 256 is not supported");
  if (c.layers > 10000) r.refuse("\"num_hidden_layers\" is out of range");
}

void refuse_unsupported(const Reader& r) {
  const std::string act = r.text("hidden_act", "silu");
  if (act != "silu" && act != "swish") r.refuse(fmt::format("hidden_act \"{}\" is not supported", act), "supported: silu");
  if (r.number("attention_dropout", 0) != 0)
    r.refuse("\"attention_dropout\" other than 0 is not supported", "set it to 0.0 in config.json");
  if (r.number("partial_rotary_factor", 1) != 1) r.refuse("\"partial_rotary_factor\" other than 1 is not supported");
  if (r.get("quantization_config"))
    r.refuse("the weights in this folder are quantised", "use the folder with the original weights");
}

std::vector<std::int32_t> token_list(const Reader& r, const char* key) {
  std::vector<std::int32_t> ids;
  const Json* v = r.get(key);
  if (!v) return ids;
  const Json list = v->is_array() ? *v : Json::array({*v});
  for (const Json& id : list) {
    if (!id.is_number_integer()) r.refuse(fmt::format("\"{}\" must be a token id or a list of them", key));
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::optional<std::int32_t> first(const std::vector<std::int32_t>& ids) {
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

}  // namespace

ModelConfig parse_model_config(const Json& json, const std::string& name) {
  const Reader r{json, name};
  if (!json.is_object()) r.refuse("a model config must be a JSON object");
  ModelConfig c;
  const Family& family = family_of(r);
  c.model_type = family.model_type;
  c.architecture = family.architecture;
  read_sizes(r, c);
  refuse_unsupported(r);
  c.rms_norm_eps = r.number("rms_norm_eps", 1e-6);
  c.initializer_range = r.number("initializer_range", 0.02);
  c.tie_word_embeddings = r.flag("tie_word_embeddings", false);
  c.rope = read_rope(r, c);
  c.dtype = dtype_named(r.text("dtype", r.text("torch_dtype", "float32")));
  c.eos_token_ids = token_list(r, "eos_token_id");
  c.bos_token_id = first(token_list(r, "bos_token_id"));
  c.pad_token_id = first(token_list(r, "pad_token_id"));
  c.windows.assign(static_cast<std::size_t>(c.layers), 0);
  try {
    family.read(json, c);
  } catch (const nlohmann::json::exception& e) {
    r.refuse(fmt::format("a field of the {} family has the wrong type ({})", family.model_type, e.what()));
  }
  c.json = json;
  return c;
}

ModelConfig load_model_config(const std::filesystem::path& folder_or_file) {
  const auto file = is_directory(folder_or_file) ? folder_or_file / "config.json" : folder_or_file;
  return parse_model_config(read_json(file), file.string());
}

}  // namespace qtrain
