#include "app/init/row_look.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/utf8.h"
#include "data/foreign_rows.h"
#include "data/prompts.h"

namespace qtrain::init {
namespace {

/// No column has this name, so texts are not read.
constexpr const char* kNoText = "(none)";

/// A row as the settings make it.
struct MappedRow {
  Json row;
  ShapeRules rules;
};
MappedRow mapped(const Json& row, const Json& settings, ChatTemplates templates) {
  return {.row = read_column_map(settings).renamed(row),
          .rules = {.text_field = settings.value("dataset_text_field", "text"),
                    .chat_template = templates == ChatTemplates::some}};
}

bool is_text_at(const Json& row, const char* key) {
  return row_has(row, key) && row.at(key).is_string();
}

void map_columns(RowLook& look, Json settings, std::string reason) {
  look.settings = std::move(settings);
  look.reason = std::move(reason);
}

/// Chooses settings for rows whose known shape is not the best one.
void improve(RowLook& look, const Json& row, ChatTemplates templates) {
  const bool chat = templates == ChatTemplates::some;
  if (look.name == "text" && row_has(row, "instruction") && row_has(row, "output"))
    map_columns(look, {{"dataset_text_field", kNoText}},
                "the rows have instruction and output, so their column text is not read");
  else if (look.name == "prompt+completion" && chat && is_text_at(row, "prompt") && is_text_at(row, "completion"))
    map_columns(
        look, {{"column_mapping", {{"instruction", "prompt"}, {"output", "completion"}}}},
        "questions and answers go through the chat template; as prompt and completion they would just be joined");
}

}  // namespace

RowLook look_at_row(const Json& row, ChatTemplates templates) {
  RowLook look;
  for (const auto& [key, value] : row.items()) look.columns.push_back(one_line(key));
  const ShapeRules plain{.chat_template = templates == ChatTemplates::some};
  look.name = shape_name(row, plain);
  if (look.name.empty()) {
    Json settings = mapping_for(row);
    if (!settings.empty())
      map_columns(look, std::move(settings), fmt::format("the columns are {}", fmt::join(look.columns, ", ")));
  } else {
    improve(look, row, templates);
  }
  const MappedRow made = mapped(row, look.settings, templates);
  look.name = shape_name(made.row, made.rules);
  look.shape = read_sample(made.row, made.rules).shape;
  return look;
}

RawRows spread_rows(const RawRows& rows, std::int64_t most) {
  if (rows.size() <= most) return rows;
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < most; ++i) chosen.push_back(i * rows.size() / most);
  return rows.select(chosen);
}

std::vector<std::string> short_questions(const RawRows& rows, const ShapeRules& rules, std::size_t most) {
  constexpr std::size_t kLongest = 200;
  constexpr std::int64_t kLooked = 50;
  std::vector<std::string> questions;
  for (std::int64_t i = 0; i < std::min(rows.size(), kLooked) && questions.size() < most; ++i) {
    const std::optional<PromptCase> asked = prompt_case(rows, i, rules);
    if (!asked || !asked->tools.is_null() || (asked->template_kwargs.is_object() && !asked->template_kwargs.empty()))
      continue;
    const bool single = asked->messages.is_array() && asked->messages.size() == 1;
    const Json content = single ? asked->messages[0].value("content", Json()) : Json(asked->prompt);
    if (!single && !asked->messages.is_null()) continue;
    if (!content.is_string()) continue;
    const auto text = content.get<std::string>();
    const bool names_file = text.ends_with(".txt") || text.ends_with(".jsonl");
    if (text.size() > kLongest || names_file || text.find_first_not_of(" \t\r\n") == text.npos) continue;
    if (std::ranges::find(questions, text) == questions.end()) questions.push_back(text);
  }
  return questions;
}

}  // namespace qtrain::init
