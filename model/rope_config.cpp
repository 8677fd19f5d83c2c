#include "model/rope_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/families/family.h"

namespace qtrain {
namespace {

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

// The key of the rotary parameters: rope_parameters in version 5, rope_scaling in version 4. If a file has both,
// transformers uses that of version 4; an empty one counts as missing.
const char* rope_key(const ConfigReader& r) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* v = r.get(key);
    if (!v) continue;
    if (!v->is_object()) r.refuse(fmt::format("\"{}\" must be an object, not {}", key, v->dump()));
    for (const auto& [inner, value] : v->items())
      if (value.is_object())
        r.refuse(fmt::format("separate \"{}\" per kind of layer (\"{}\") are not supported", key, inner));
    if (!v->empty()) return key;
  }
  return nullptr;
}

constexpr const char *kOriginalLength = "original_max_position_embeddings", *kPartial = "partial_rotary_factor";

void read_factor(const ConfigReader& table, const ModelConfig& c, RopeConfig& rope) {
  const bool implied = rope.type == RopeConfig::Type::yarn;
  if (!implied && !table.get("factor")) table.refuse("\"factor\" is missing");
  rope.factor = table.number("factor", static_cast<double>(c.max_position_embeddings) / rope.original_max_position);
  if (!(rope.factor >= 1)) table.refuse(fmt::format("\"factor\" must be at least 1, not {}", rope.factor));
}

void read_yarn(const ConfigReader& table, RopeConfig& rope) {
  rope.beta_fast = table.positive_number("beta_fast", rope.beta_fast);
  rope.beta_slow = table.positive_number("beta_slow", rope.beta_slow);
  rope.truncate = table.flag("truncate", true);
  if (table.get("attention_factor")) rope.attention_factor = table.positive_number("attention_factor", 1);
  if (table.get("mscale")) rope.mscale = table.number("mscale", 1);
  if (table.get("mscale_all_dim")) rope.mscale_all_dim = table.number("mscale_all_dim", 1);
}

// A list of `count` factors, one per frequency.
std::vector<double> read_factors(const ConfigReader& table, const char* key, std::int64_t count) {
  const Json* list = table.get(key);
  if (!list) table.refuse(fmt::format("\"{}\" is missing", key));
  const auto is_factor = [](const Json& v) { return v.is_number() && v > 0; };
  if (!list->is_array() || static_cast<std::int64_t>(list->size()) != count || !std::ranges::all_of(*list, is_factor))
    table.refuse(fmt::format("\"{}\" must be a list of {} numbers greater than 0", key, count),
                 "one for each rotated pair of elements of a head");
  return list->get<std::vector<double>>();
}

void read_longrope(const ConfigReader& table, const ModelConfig& c, RopeConfig& rope) {
  rope.factor =
      table.positive_number("factor", static_cast<double>(c.max_position_embeddings) / rope.original_max_position);
  if (table.get("attention_factor")) rope.attention_factor = table.positive_number("attention_factor", 1);
  if (!rope.attention_factor && rope.factor > 1 && !(rope.original_max_position > 1))
    table.refuse(fmt::format("\"{}\" must be greater than 1", kOriginalLength));
  rope.short_factors = read_factors(table, "short_factor", rope.dims(c.head_dim) / 2);
  rope.long_factors = read_factors(table, "long_factor", rope.dims(c.head_dim) / 2);
}

// Reads the fraction of a head that is rotated, which must be a whole number of pairs.
void read_partial(const ConfigReader& table, const ModelConfig& c, RopeConfig& rope) {
  rope.partial = table.positive_number(kPartial, 1);
  if (rope.partial == 1) return;
  if (!c.family->partial_rotary) table.refuse(fmt::format("\"{}\" other than 1 is not supported", kPartial));
  if (const std::int64_t dims = rope.dims(c.head_dim); rope.partial > 1 || dims < 2 || dims % 2 != 0)
    table.refuse(fmt::format("\"{}\" {} of heads of {} elements is not a whole number of pairs", kPartial, rope.partial,
                             c.head_dim));
}

void read_llama3(const ConfigReader& table, RopeConfig& rope) {
  rope.low_freq_factor = table.positive_number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = table.positive_number("high_freq_factor", rope.high_freq_factor);
  if (!(rope.high_freq_factor > rope.low_freq_factor))
    table.refuse("\"high_freq_factor\" must be greater than \"low_freq_factor\"");
}

const Json* object_of(const ConfigReader& r, const char* key) {
  const Json* v = r.get(key);
  if (v && !v->is_object()) r.refuse(fmt::format("\"{}\" must be an object, not {}", key, v->dump()));
  return v;
}

constexpr std::string_view kFull = "full_attention", kSliding = "sliding_attention";

// One kind of layer's table in the rope_parameters of version 5.
Json table_of_kind(const ConfigReader& r, const char* kind) {
  const Json* both = object_of(r, "rope_parameters");
  if (!both) return Json::object();
  for (const auto& [key, value] : both->items())
    if (key != kFull && key != kSliding)
      r.refuse(fmt::format("\"rope_parameters\" has an unknown key \"{}\"", key),
               "it must hold full_attention and sliding_attention only");
  const Json* table = object_of({*both, r.name}, kind);
  return table ? *table : Json::object();
}

}  // namespace

RopeConfig read_rope_of_kind(const ConfigReader& r, const ModelConfig& c, const LayerKind& kind) {
  Json table = table_of_kind(r, kind.name);
  const Json* scaling = kind.name == kFull ? object_of(r, "rope_scaling") : nullptr;
  if (scaling && table.empty() && scaling->contains("type") && !scaling->contains("rope_type"))
    r.refuse("\"rope_scaling\" has \"type\", which transformers ignores in this family", "rename it to rope_type");
  if (scaling) table.update(*scaling);
  return read_rope_table({table, fmt::format("{}: rotary parameters of {}", r.name, kind.name)}, c, kind.theta);
}

RopeConfig read_rope_table(const ConfigReader& table, const ModelConfig& c, double theta) {
  using Type = RopeConfig::Type;
  RopeConfig rope;
  rope.theta = table.positive_number("rope_theta", theta);
  rope.original_max_position = static_cast<double>(c.max_position_embeddings);
  std::string type = table.text("rope_type", table.text("type", "default"));
  if (c.family->old_longrope && (type == "su" || type == "yarn")) type = "longrope";
  rope.type = rope_type(table, type);
  read_partial(table, c, rope);
  if (rope.type == Type::standard) return rope;
  // For dynamic NTK, transformers uses max_position_embeddings, whatever the original length says.
  if (rope.type == Type::llama3 || rope.type == Type::yarn || rope.type == Type::longrope)
    rope.original_max_position = table.positive_number(kOriginalLength, rope.original_max_position);
  if (rope.type == Type::longrope) {
    read_longrope(table, c, rope);
    return rope;
  }
  read_factor(table, c, rope);
  if (rope.type == Type::yarn) read_yarn(table, rope);
  if (rope.type == Type::llama3) read_llama3(table, rope);
  return rope;
}

RopeConfig read_rope(const ConfigReader& r, const ModelConfig& c) {
  const char* key = rope_key(r);
  Json table = key ? *r.get(key) : Json::object();
  // A length outside the table overrides one inside.
  if (const Json* outer = r.get(kOriginalLength)) table[kOriginalLength] = *outer;
  if (const Json* outer = r.get(kPartial); outer && !table.contains(kPartial)) table[kPartial] = *outer;
  const std::string place = key ? r.name + ": " + key : r.name;
  return read_rope_table({table, place}, c, r.positive_number("rope_theta", 10000));
}

}  // namespace qtrain
