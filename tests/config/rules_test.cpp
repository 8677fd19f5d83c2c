// The expressions in rule tables use known names only.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "config/dialect_table.h"
#include "config/keys.h"

namespace qtrain {
namespace {

/// Names in an expression that are neither keys nor words of the language. Jinja treats them as undefined, so a rule
/// with such a name would never hold, or always.
std::set<std::string> unknown_names(std::string expression) {
  static const std::regex literal(R"("[^"]*"|\| *\w+)"), word("[A-Za-z_][A-Za-z_0-9]*");
  static const std::set<std::string> kWords{
      "and",        "or",     "not",     "in",           "is",    "none",     "true",
      "false",      "given",  "on_gpu",  "cuda_problem", "value", "max_rank", "date_is_known",
      "optimizers", "number", "integer", "boolean",      "ranks"};
  expression = std::regex_replace(expression, literal, "");
  std::set<std::string> unknown;
  for (std::sregex_iterator m(expression.begin(), expression.end(), word), end; m != end; ++m)
    if (!kWords.contains(m->str()) && (!is_config_key(m->str()) || canonical_key(m->str()) != m->str()))
      unknown.insert(m->str());
  return unknown;
}

TEST(Rules, NameKeysThatThereAre) {
  EXPECT_EQ(unknown_names("fp17 and eval_strategy != \"steps\""), std::set<std::string>{"fp17"});
  std::size_t seen = 0;
  for (const char* table : {"rules", "hf", "expert", "modelforge", "llamafactory", "axolotl"})
    for (const char* part : {"refused", "unsupported", "then", "without_effect", "told"})
      for (const Json& rule : dialect_table(table).object(part)) {
        if (!rule.is_object() || !rule.contains("when")) continue;
        EXPECT_EQ(unknown_names(rule["when"]), std::set<std::string>{}) << rule["when"];
        ++seen;
      }
  for (const auto& [name, preset] : dialect_table("presets").data.items())
    for (const Json& row : preset.at("then"))
      if (row.contains("when")) EXPECT_EQ(unknown_names(row["when"]), std::set<std::string>{}) << name;
  EXPECT_GT(seen, 50u);
}

}  // namespace
}  // namespace qtrain
