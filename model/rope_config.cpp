#include "model/rope_config.h"

namespace qtrain {
namespace {

RopeConfig::Type rope_type(const ConfigReader& r, const std::string& type) {
  using Type = RopeConfig::Type;
  constexpr std::pair<std::string_view, Type> kTypes[] = {{"default", Type::standard},
                                                          {"linear", Type::linear},
                                                          {"dynamic", Type::dynamic},
                                                          {"llama3", Type::llama3},
                                                          {"yarn", Type::yarn}};
  for (const auto& [known, value] : kTypes)
    if (known == type) return value;
  r.refuse(fmt::format("\"rope_type\" \"{}\" is not supported", type),
           "supported: default, linear, dynamic, llama3, yarn");
}

// The key of the rotary parameters: version 5 has rope_parameters, version 4 rope_scaling. Where a file has both,
// transformers takes that of version 4; an empty one is none.
const char* rope_key(const ConfigReader& r) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* v = r.get(key);
    if (!v) continue;
    if (!v->is_object()) r.refuse(fmt::format("\"{}\" must be an object, not {}", key, v->dump()));
    for (const auto& [inner, value] : v->items())
      if (value.is_object())
        r.refuse(fmt::format("\"{}\" for each kind of layer (\"{}\") is not supported", key, inner));
    if (!v->empty()) return key;
  }
  return nullptr;
}

constexpr const char* kOriginalLength = "original_max_position_embeddings";

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

void read_llama3(const ConfigReader& table, RopeConfig& rope) {
  rope.low_freq_factor = table.magnitude("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = table.magnitude("high_freq_factor", rope.high_freq_factor);
  if (!(rope.high_freq_factor > rope.low_freq_factor))
    table.refuse("\"high_freq_factor\" must be greater than \"low_freq_factor\"");
}

}  // namespace

RopeConfig read_rope_table(const ConfigReader& table, const ModelConfig& c, double theta) {
  using Type = RopeConfig::Type;
  RopeConfig rope;
  rope.theta = table.magnitude("rope_theta", theta);
  rope.original_max_position = static_cast<double>(c.max_position_embeddings);
  rope.type = rope_type(table, table.text("rope_type", table.text("type", "default")));
  if (table.number("partial_rotary_factor", 1) != 1)
    table.refuse("\"partial_rotary_factor\" other than 1 is not supported");
  if (rope.type == Type::standard) return rope;
  // transformers computes dynamic NTK from max_position_embeddings whatever the original length says.
  if (rope.type == Type::llama3 || rope.type == Type::yarn)
    rope.original_max_position = table.magnitude(kOriginalLength, rope.original_max_position);
  read_factor(table, c, rope);
  if (rope.type == Type::yarn) read_yarn(table, rope);
  if (rope.type == Type::llama3) read_llama3(table, rope);
  return rope;
}

RopeConfig read_rope(const ConfigReader& r, const ModelConfig& c) {
  const char* key = rope_key(r);
  Json table = key ? *r.get(key) : Json::object();
  // A length outside the table wins over one inside.
  if (const Json* outer = r.get(kOriginalLength)) table[kOriginalLength] = *outer;
  const std::string place = key ? r.name + ": " + key : r.name;
  return read_rope_table({table, place}, c, r.magnitude("rope_theta", 10000));
}

}  // namespace qtrain
