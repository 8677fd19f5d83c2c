#include "model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/config_reader.h"
#include "model/families/family.h"
#include "model/rope_config.h"
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
  if (r.get("text_config"))
    r.refuse(fmt::format("model_type \"{}\" is not supported: it is a vision-language model", type),
             "docs/files.md shows how to extract its language model, which is supported if it is one of: " + known);
  r.refuse(fmt::format("model_type \"{}\" is not supported", type), "supported: " + known);
}

void read_sizes(const ConfigReader& r, ModelConfig& c) {
  c.hidden_size = r.positive("hidden_size");
  c.intermediate_size = r.positive("intermediate_size");
  c.layers = r.positive("num_hidden_layers");
  c.heads = r.positive("num_attention_heads");
  c.kv_heads = r.positive("num_key_value_heads", c.heads);
  if (!r.get("head_dim") && c.hidden_size % c.heads != 0)
    r.refuse("\"hidden_size\" is not a multiple of \"num_attention_heads\" and \"head_dim\" is missing");
  c.head_dim = r.positive("head_dim", std::max<std::int64_t>(1, c.hidden_size / c.heads));
  c.vocab_size = r.positive("vocab_size");
  c.max_position_embeddings = r.positive("max_position_embeddings", 2048);
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

// A key that is present with the value null gets no default.
Json with_defaults(const Json& json, const Family& family) {
  Json all = Json::parse(family.defaults);
  all.update(json);
  return all;
}

}  // namespace

ModelConfig parse_model_config(const Json& json, const std::string& name) {
  const ConfigReader given{json, name};
  if (!json.is_object()) given.refuse("a model config must be a JSON object");
  ModelConfig c;
  const Family& family = family_of(given);
  const Json all = with_defaults(json, family);
  const ConfigReader r{all, name};
  c.family = &family;
  c.model_type = family.model_type;
  c.architecture = family.architecture;
  read_sizes(r, c);
  refuse_unsupported(r);
  c.activation = read_activation(r, family);
  c.rms_norm_eps = r.positive_number("rms_norm_eps", 1e-6);
  c.initializer_range = r.number("initializer_range", 0.02);
  c.tie_word_embeddings = r.flag("tie_word_embeddings", false);
  c.dtype = weight_dtype(r);
  const bool mxfp4 = family.mxfp4_experts && is_mxfp4_config(json);
  c.fp8 = fp8_config(json, name);
  const bool expanded = mxfp4 || c.fp8;
  if (!expanded) c.quantization = bnb_config(json, name);
  c.eos_token_ids = r.tokens("eos_token_id");
  c.bos_token_id = first(r.tokens("bos_token_id"));
  c.pad_token_id = first(r.tokens("pad_token_id"));
  c.attention.resize(static_cast<std::size_t>(c.layers));
  family.read(r, c);
  if (c.ropes.empty()) c.ropes = {read_rope(r, c)};
  c.json = json;
  if (!expanded) return c;
  c.json.erase("quantization_config");  // the weights that will be written are dense
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
