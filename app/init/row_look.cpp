#include "app/init/row_look.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "core/utf8.h"
#include "data/foreign_rows.h"
#include "data/prompts.h"

namespace qtrain::init {
namespace {

/// No column has this name, so texts are not read.
constexpr const char* kNoText = "(none)";
constexpr std::size_t kNamed = 6;  // columns that a text lists

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

bool is_text_at(const Json& row, std::string_view key) {
  return row_has(row, key) && row.at(key).is_string();
}

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// "a, b and 3 more".
std::string some_of(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kNamed);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

/// A column name in a reason or warning.
std::string shown_name(const std::string& name) {
  constexpr std::size_t kLongest = 60;
  const std::string line = one_line(name);
  return line.size() <= kLongest ? line : valid_utf8(line.substr(0, kLongest)) + "...";
}

/// "Frage as instruction, Antwort as output".
std::string reason_of(const Json& settings) {
  std::vector<std::string> uses;
  const Json mapping = settings.value("column_mapping", Json::object());
  for (const auto& [ours, theirs] : mapping.items())
    uses.push_back(fmt::format("{} as {}", shown_name(theirs.get<std::string>()), ours));
  return fmt::format("by the names of the columns{}{}", uses.empty() ? "" : ": ", fmt::join(uses, ", "));
}

void map_columns(RowLook& look, Json settings, std::string reason) {
  look.settings = std::move(settings);
  look.reason = std::move(reason);
}

/// Whether the columns that a shape reads are named like a question and an answer; others next to a text may be a
/// user's name or a class.
bool names_a_pair(const Json& row, const Json& settings) {
  constexpr std::array<std::string_view, 7> kQuestions{"instruction", "question", "query", "problem",
                                                       "frage",       "prompt",   "input"};
  constexpr std::array<std::string_view, 6> kAnswers{"output",     "solution", "answer",
                                                     "completion", "response", "antwort"};
  const Json mapping = settings.value("column_mapping", Json::object());
  const auto is_one = [&](const char* role, const auto& names) {
    const std::string column = mapping.value(role, role);
    return is_text_at(row, column) && std::ranges::find(names, lower_case(column)) != names.end();
  };
  return (is_one("instruction", kQuestions) || is_one("input", kQuestions)) && is_one("output", kAnswers);
}

/// Texts are only read if there is no question with its answer.
void prefer_answers(RowLook& look, const Json& row) {
  Json rest = row;
  rest.erase("text");
  Json settings = mapping_for(rest);
  if (!names_a_pair(rest, settings)) return;
  settings["dataset_text_field"] = kNoText;
  map_columns(look, std::move(settings), "the rows have questions and answers, so their column text is not read");
}

/// Chooses settings for rows whose known shape is not the best one.
void improve(RowLook& look, const Json& row, ChatTemplates templates) {
  const bool chat = templates == ChatTemplates::some;
  if (look.name == "text") {
    prefer_answers(look, row);
  } else if (look.name == "prompt+completion") {
    if (!chat || !is_text_at(row, "prompt") || !is_text_at(row, "completion")) return;
    Json mapping{{"instruction", "prompt"}, {"output", "completion"}};
    if (is_text_at(row, "system_prompt") && !row_has(row, "system")) mapping["system"] = "system_prompt";
    map_columns(
        look, {{"column_mapping", std::move(mapping)}},
        "questions and answers go through the chat template; as prompt and completion they would just be joined");
  } else if (look.name != "input_ids") {
    Json settings = mapping_for(row);
    if (settings.contains("column_mapping")) map_columns(look, settings, reason_of(settings));
  }
}

/// Columns of a shape, besides those of its name.
bool is_read(const RowLook& look, const ShapeRules& rules, std::string_view key) {
  constexpr std::array<std::string_view, 3> kExtras{"system", "tools", "chat_template_kwargs"};
  if (look.name == "text") return key == rules.text_field;
  if (look.name == "instruction+output" && (key == "input" || key == "history")) return true;
  if (look.name != "input+output" && rules.chat_template && std::ranges::find(kExtras, key) != kExtras.end())
    return true;
  return ("+" + look.name + "+").find(fmt::format("+{}+", key)) != std::string::npos;
}

/// Whether a column says something about the row and is no part of its text.
bool is_about_row(std::string name) {
  constexpr std::array<std::string_view, 28> kAbout{
      "id",   "idx",  "index",   "uuid",    "key",     "hash",    "source",   "url",      "link", "split",
      "lang", "type", "dataset", "subset",  "license", "date",    "category", "created",  "time", "model",
      "file", "path", "author",  "version", "domain",  "subject", "language", "timestamp"};
  name = lower_case(std::move(name));
  return std::ranges::find(kAbout, name) != kAbout.end() || name.ends_with("_id") || name.ends_with("_url") ||
         name.ends_with("_type") || name.ends_with("_at");
}

/// Whether a value is text to learn from, rather than a number.
bool is_content(const Json& value) {
  if (value.is_array()) return !value.empty() && value.front().is_string();
  return value.is_string() && std::ranges::any_of(value.get_ref<const std::string&>(),
                                                  [](unsigned char c) { return std::isalpha(c) != 0 || c >= 0x80; });
}

/// Whether a text repeats what the row reads, as Alpaca's column `text` does.
bool repeats(const Json& value, const MappedRow& made) {
  if (!value.is_string() || !is_text_at(made.row, "instruction") || !is_text_at(made.row, "output")) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text.find(made.row.at("instruction").get_ref<const std::string&>()) != text.npos &&
         text.find(made.row.at("output").get_ref<const std::string&>()) != text.npos;
}

void add_unread(RowLook& look, const MappedRow& made) {
  if (look.shape == RowShape::tokens) return;
  for (const auto& [key, value] : made.row.items()) {
    if (is_read(look, made.rules, key) || is_about_row(key) || repeats(value, made)) continue;
    const bool is_class = look.name == "text" && lower_case(key) == "label" && !value.is_null();
    if (!is_content(value) && !is_class) continue;
    if (std::string name = shown_name(key); std::ranges::find(look.unread, name) == look.unread.end())
      look.unread.push_back(std::move(name));
  }
}

/// Adds the columns that only other rows of the same shape have.
void add_settings(RowLook& look, const RowLook& other) {
  for (const auto& [key, value] : other.settings.items()) {
    if (!look.settings.contains(key))
      look.settings[key] = value;
    else if (value.is_object())
      for (const auto& [ours, theirs] : value.items())
        if (!look.settings[key].contains(ours)) look.settings[key][ours] = theirs;
  }
  if (look.reason.empty()) look.reason = other.reason;
}

/// The look of the most frequent shape, and how many rows have another one.
RowLook most_frequent(const std::vector<RowLook>& looks) {
  std::map<std::string, std::size_t> votes;
  for (const RowLook& look : looks) ++votes[look.name];
  RowLook best = *std::ranges::max_element(looks, {}, [&](const RowLook& look) { return votes[look.name]; });
  std::vector<std::string> others;
  for (const RowLook& look : looks)
    if (look.name == best.name) add_settings(best, look);
  for (const auto& [name, count] : votes)
    if (name != best.name) others.push_back(fmt::format("{} of {}", count, name));
  if (!others.empty())
    best.warnings.push_back(
        fmt::format("not all rows are alike: of {} that were looked at, {} have the shape {}, but {}", looks.size(),
                    votes[best.name], best.name, fmt::join(others, ", ")));
  return best;
}

}  // namespace

RowLook look_at_row(const Json& row, ChatTemplates templates) {
  RowLook look;
  const ShapeRules plain{.chat_template = templates == ChatTemplates::some};
  look.name = shape_name(row, plain);
  if (look.name.empty()) {
    Json settings = mapping_for(row);
    if (!settings.empty()) map_columns(look, settings, reason_of(settings));
  } else {
    improve(look, row, templates);
  }
  const MappedRow made = mapped(row, look.settings, templates);
  look.name = shape_name(made.row, made.rules);
  look.shape = read_sample(made.row, made.rules).shape;
  add_unread(look, made);
  return look;
}

RowLook look_at_rows(const RawRows& rows, ChatTemplates templates) {
  constexpr std::int64_t kLooked = 200;
  const RawRows some = spread_rows(rows, kLooked);
  std::vector<RowLook> looks;
  std::optional<Error> wrong;
  for (std::int64_t i = 0; i < some.size(); ++i) {
    try {
      with_place(some.place(i), [&] { looks.push_back(look_at_row(some.parse(i), templates)); });
    } catch (const Error& e) {  // of a few rows; their preparation says more
      if (e.kind() != ErrorKind::input) throw;
      if (!wrong) wrong = e;
    }
  }
  if (looks.empty()) throw *wrong;
  RowLook best = most_frequent(looks);
  best.unread.clear();
  for (std::int64_t i = 0; i < some.size(); ++i) {
    try {
      const MappedRow made = mapped(some.parse(i), best.settings, templates);
      if (shape_name(made.row, made.rules) == best.name) add_unread(best, made);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
    }
  }
  return best;
}

std::string names_of_unread(const RowLook& look) {
  if (look.unread.empty()) return {};
  return fmt::format("the column{} {} {} not read", look.unread.size() == 1 ? "" : "s", some_of(look.unread),
                     look.unread.size() == 1 ? "is" : "are");
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
