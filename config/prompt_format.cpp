#include "config/prompt_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

namespace qtrain {
namespace {

constexpr std::array<std::string_view, 8> kTypeMembers{
    "format",      "no_input_format", "system_prompt",     "system_format",
    "field_input", "field_output",    "field_instruction", "field_system"};

bool is_said(const Json& type, std::string_view member) {
  const auto at = type.find(member);
  return at != type.end() && !at->is_null() && *at != "";
}

std::string text_of(const Json& type, std::string_view member, std::string_view otherwise) {
  return is_said(type, member) ? type.at(member).get<std::string>() : std::string(otherwise);
}

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}
std::string literally(const std::string& text) {
  return replaced(replaced(text, "{", "{{"), "}", "}}");
}
/// Columns of rows by the names that fields of a text have.
using FieldColumns = std::map<std::string, std::string, std::less<>>;
/// The text with its fields under the names of columns, all at once: a column may be called as another field is. {{ and
/// }} are no fields.
std::string with_fields(std::string_view text, const FieldColumns& columns) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const bool brace = rest.starts_with("{{") || rest.starts_with("}}");
    const std::size_t end = !brace && rest[0] == '{' ? rest.find('}') : rest.npos;
    const auto column = end == rest.npos ? columns.end() : columns.find(rest.substr(1, end - 1));
    const std::size_t taken = brace ? 2 : column != columns.end() ? end + 1 : 1;
    out += column != columns.end() ? fmt::format("{{{}}}", column->second) : std::string(rest.substr(0, taken));
    at += taken;
  }
  return out;
}

std::string problem_with(const Json& type) {
  for (const auto& [member, value] : type.items()) {
    if (std::find(kTypeMembers.begin(), kTypeMembers.end(), member) == kTypeMembers.end())
      return fmt::format("unknown member \"type.{}\"", member);
    if (!value.is_null() && !value.is_string()) return fmt::format("type.{} is not a string", member);
  }
  return {};
}

/// The question with an input and without, in the names that rows have.
std::vector<std::string> turns_of(const Json& type) {
  const FieldColumns columns{{"instruction", text_of(type, "field_instruction", "instruction")},
                             {"input", text_of(type, "field_input", "input")}};
  std::vector<std::string> turns;
  for (const char* member : {"format", "no_input_format"})
    if (is_said(type, member)) turns.push_back(with_fields(text_of(type, member, ""), columns));
  return turns;
}

}  // namespace

bool has_prompt_format(const Json& type) {
  return is_said(type, "format") || is_said(type, "no_input_format");
}

PromptFormat read_prompt_format(const Json& type) {
  if (std::string problem = problem_with(type); !problem.empty()) return {.problem = std::move(problem)};
  const std::string system = text_of(type, "system_format", "{system}"), column = text_of(type, "field_system", ""),
                    words = text_of(type, "system_prompt", "");
  std::vector<std::string> turns = turns_of(type);
  Json texts = Json::array();
  if (!column.empty())
    for (const std::string& turn : turns) texts.push_back(with_fields(system, {{"system", column}}) + turn);
  else if (!words.empty())
    for (std::string& turn : turns) turn = replaced(system, "{system}", literally(words)) + turn;
  for (const std::string& turn : turns) texts.push_back(turn);
  return {.columns = {{"prompt", texts}, {"completion", text_of(type, "field_output", "output")}}};
}

}  // namespace qtrain
