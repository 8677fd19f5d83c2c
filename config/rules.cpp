#include "config/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/dialect_table.h"
#include "config/fields.h"
#include "config/keys.h"

namespace qtrain {
namespace {

bool meets(const Json& value, const Json& condition, const Json& values) {
  if (condition.is_array()) return std::ranges::find(condition, value) != condition.end();
  if (!condition.is_object()) return value == condition;
  const std::string kind = condition.begin().key();
  const Json& operand = condition.begin().value();
  if (kind == "not") return !meets(value, operand, values);
  if (kind == "not_below") return value.is_number() && value >= values.at(operand.get_ref<const std::string&>());
  if (!value.is_number() || value <= operand) return false;
  return kind == "above" || std::floor(value.get<double>()) != value;
}

/// The text with values in it: words without quotes.
std::string filled(std::string_view text, const Json& values) {
  std::string out;
  for (std::size_t open = 0; (open = text.find('{')) != text.npos;) {
    const std::size_t close = text.find('}', open);
    const Json& value = values.at(std::string(text.substr(open + 1, close - open - 1)));
    out += text.substr(0, open);
    out += value.is_string()         ? value.get<std::string>()
           : value.is_number_float() ? fmt::format("{}", value.get<double>())
                                     : show(value);
    text.remove_prefix(close + 1);
  }
  return out + std::string(text);
}

bool holds(const Json& when, const Json& values) {
  if (when.is_array()) return std::ranges::any_of(when, [&](const Json& each) { return holds(each, values); });
  return std::ranges::all_of(when.items(), [&](const auto& c) { return meets(values.at(c.key()), c.value(), values); });
}

}  // namespace

bool applies(const Json& rule, const ResolvedConfig& config, const Json& values) {
  const auto given = [&](const std::string& key) { return config.given(key); };
  return holds(rule.value("when", Json::object()), values) &&
         std::ranges::all_of(rule.value("given", Json::array()), given) &&
         std::ranges::none_of(rule.value("not_given", Json::array()), given);
}

std::vector<Rule> rules_on(const ResolvedConfig& config, std::string_view part) {
  const Json values = values_json(config.value);
  std::vector<Rule> rules;
  for (const Json& rule : dialect_table("rules").object(part))
    if (applies(rule, config, values))
      rules.push_back({rule.at("key"), filled(rule.at("text").get<std::string>(), values), rule.value("remedy", "")});
  return rules;
}

}  // namespace qtrain
