#include "train/config/prompt_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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
/// The text with the field of one name under another; {{ and }} are no fields.
std::string with_field(std::string_view text, std::string_view name, std::string_view column) {
  std::string out;
  const std::string field = fmt::format("{{{}}}", name);
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const bool brace = rest.starts_with("{{") || rest.starts_with("}}"), found = !brace && rest.starts_with(field);
    const std::size_t taken = brace ? 2 : found ? field.size() : 1;
    out += found ? fmt::format("{{{}}}", column) : std::string(rest.substr(0, taken));
    at += taken;
  }
  return out;
}

std::string problem_with(const Json& type) {
  for (const auto& [member, value] : type.items()) {
    if (std::find(kTypeMembers.begin(), kTypeMembers.end(), member) == kTypeMembers.end())
      return fmt::format("unknown member \"type.{}\"", member);
    if (!value.is_null() && !value.is_string()) return fmt::format("type.{} is no string", member);
  }
  return {};
}

/// The question with an input and without, in the names that rows have.
std::vector<std::string> turns_of(const Json& type) {
  const std::string instruction = text_of(type, "field_instruction", "instruction"),
                    input = text_of(type, "field_input", "input");
  std::vector<std::string> turns;
  for (const char* member : {"format", "no_input_format"})
    if (is_said(type, member))
      turns.push_back(with_field(with_field(text_of(type, member, ""), "instruction", instruction), "input", input));
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
    for (const std::string& turn : turns) texts.push_back(with_field(system, "system", column) + turn);
  else if (!words.empty())
    for (std::string& turn : turns) turn = replaced(system, "{system}", literally(words)) + turn;
  for (const std::string& turn : turns) texts.push_back(turn);
  return {.columns = {{"prompt", texts}, {"completion", text_of(type, "field_output", "output")}}};
}

}  // namespace qtrain
