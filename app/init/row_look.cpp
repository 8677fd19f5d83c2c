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

/// A row as settings make it, and what is read of it.
struct Reading {
  ColumnMap map;
  Json row;
  std::string name;
  Sample sample;
  std::vector<std::string> columns = {};  ///< of the row as made
};
Reading read_with(const Json& row, const Json& settings, ChatTemplates templates) {
  const ShapeRules rules{.text_field = settings.value("dataset_text_field", "text"),
                         .chat_template = templates == ChatTemplates::some};
  ColumnMap map = read_column_map(settings);
  Json made = map.renamed(row);
  std::string name(shape_name(made, rules));
  Sample sample = read_sample(made, rules);
  std::vector<std::string> columns = columns_of(name, sample.shape, rules);
  return {std::move(map), std::move(made), std::move(name), std::move(sample), std::move(columns)};
}

/// What a column is called after mapping; "" if another one takes its name.
std::string name_after(const std::string& column, const Json& row, const ColumnMap& map) {
  for (const auto& [ours, theirs] : map.columns)
    if (theirs == column) return ours;
  const auto other = map.columns.find(column);
  return other != map.columns.end() && row.contains(other->second) ? std::string() : column;
}

bool is_text_at(const Json& row, std::string_view key) {
  return row_has(row, key) && row.at(key).is_string();
}

/// "a, b and 3 more": the first names, as many as a line holds.
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 6, kLine = 60;
  std::string text;
  std::size_t shown = 0;
  for (; shown < std::min(names.size(), kNamed) && (shown == 0 || text.size() + names[shown].size() < kLine); ++shown)
    text += (shown == 0 ? "" : ", ") + names[shown];
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

/// A column name in a reason or warning.
std::string shown_name(const std::string& name) {
  constexpr std::size_t kLongest = 60;
  const std::string line = one_line(name);
  return line.size() <= kLongest ? line : valid_utf8(line.substr(0, kLongest)) + "...";
}

/// Settings for a row whose columns have other names, or whose known shape leaves some out.
Json settings_for(const Json& row, std::string_view name, ChatTemplates templates) {
  if (name.empty()) return mapping_for(row);
  if (name == "text") {  // is only read if there is no conversation, and no question with its answer
    std::optional<Json> settings = answers_beside_text(row);
    if (!settings) return Json::object();
    (*settings)["dataset_text_field"] = kNoText;
    return *settings;
  }
  const bool joined = name == "prompt+completion" && (templates == ChatTemplates::none || !is_text_at(row, "prompt") ||
                                                      !is_text_at(row, "completion"));
  return joined ? Json::object() : additions_for(row, name);
}

/// Whether a column says something about the row and is no part of its text.
bool is_about_row(std::string name) {
  constexpr std::array<std::string_view, 31> kAbout{
      "id",       "idx",     "index",    "uuid",      "key",     "hash",     "source",  "url",
      "link",     "split",   "lang",     "type",      "dataset", "subset",   "license", "date",
      "category", "created", "time",     "model",     "file",    "path",     "author",  "version",
      "domain",   "subject", "language", "timestamp", "meta",    "metadata", "tags"};
  name = plain_name(std::move(name));
  return std::ranges::find(kAbout, name) != kAbout.end() || name.ends_with("_id") || name.ends_with("_url") ||
         name.ends_with("_type") || name.ends_with("_at");
}

/// Whether a value has text to learn from, rather than numbers or an address.
bool is_content(const Json& value) {
  if (value.is_structured()) return std::ranges::any_of(value, is_content);
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  const bool is_address = text.starts_with("http") && text.find(' ') == text.npos;
  return !is_address && std::ranges::any_of(text, [](unsigned char c) { return std::isalpha(c) != 0 || c >= 0x80; });
}

/// What is read of a row, in pieces.
std::vector<std::string> texts_of(const Sample& sample) {
  std::vector<std::string> texts{sample.prompt, sample.text};
  for (const Json& list : {sample.messages, sample.completion})
    for (const Json& message : list)
      if (message.is_object() && is_text_at(message, "content")) texts.push_back(message.at("content"));
  std::erase_if(texts, [](const std::string& text) { return text.empty(); });
  return texts;
}

/// Whether a text repeats what the row reads: all of it, as Alpaca's column `text` does, or a part.
bool repeats(const Json& value, const Reading& reading) {
  constexpr std::size_t kLong = 16;  // a shorter one may be in another by chance
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  const auto has = [&](const std::string& part) { return text.find(part) != text.npos; };
  const auto is_in = [&](const std::string& whole) {
    return text == whole || (text.size() >= kLong && whole.find(text) != whole.npos);
  };
  const std::vector<std::string> texts = texts_of(reading.sample);
  if (std::ranges::any_of(texts, is_in) || (texts.size() > 1 && std::ranges::all_of(texts, has))) return true;
  return is_text_at(reading.row, "instruction") && is_text_at(reading.row, "output") &&
         has(reading.row.at("instruction")) && has(reading.row.at("output"));
}

void add_unread(RowLook& look, const Json& row, const Reading& reading) {
  if (look.shape == RowShape::tokens) return;
  for (const auto& [key, value] : row.items()) {
    const bool is_read = std::ranges::find(reading.columns, name_after(key, row, reading.map)) != reading.columns.end();
    if (is_read || is_about_row(key) || repeats(value, reading)) continue;
    const bool is_class = look.name == "text" && plain_name(key) == "label" && !value.is_null();
    if (!is_content(value) && !is_class) continue;
    if (std::string name = shown_name(key); std::ranges::find(look.unread, name) == look.unread.end())
      look.unread.push_back(std::move(name));
  }
}

struct LookedAt {
  Json row;
  RowLook look;
};

/// The shapes of rows with the settings of a look, and how much of them is read.
struct Trial {
  std::map<std::string, std::size_t> shapes;
  std::size_t alike = 0, columns = 0;  ///< rows of the look's shape, and their columns with something in them
};
Trial trial_of(const std::vector<LookedAt>& rows, const RowLook& look, ChatTemplates templates) {
  const ShapeRules rules{.text_field = look.settings.value("dataset_text_field", "text"),
                         .chat_template = templates == ChatTemplates::some};
  const ColumnMap map = read_column_map(look.settings);
  const std::vector<std::string> columns = columns_of(look.name, look.shape, rules);
  Trial trial;
  for (const LookedAt& looked : rows) {
    const Json made = map.renamed(looked.row);
    const std::string name(shape_name(made, rules));
    ++trial.shapes[name.empty() ? "no known one" : name];
    if (name != look.name) continue;
    ++trial.alike;
    trial.columns += static_cast<std::size_t>(
        std::ranges::count_if(columns, [&](const std::string& column) { return is_filled(made, column); }));
  }
  return trial;
}

/// Adds the columns that only other rows of the same shape have.
void add_settings(Json& settings, const Json& other) {
  for (const auto& [key, value] : other.items()) {
    if (!settings.contains(key))
      settings[key] = value;
    else if (value.is_object())
      for (const auto& [ours, theirs] : value.items())
        if (!settings[key].contains(ours)) settings[key][ours] = theirs;
  }
}

/// The looks of the rows: for each shape one with the settings of all its rows, then those with other settings.
std::vector<RowLook> different_looks(const std::vector<LookedAt>& rows) {
  constexpr std::size_t kTried = 16;
  std::vector<RowLook> whole, single;
  const auto is_same = [](const RowLook& a, const RowLook& b) { return a.name == b.name && a.settings == b.settings; };
  for (const auto& [row, look] : rows) {
    const auto all = std::ranges::find(whole, look.name, &RowLook::name);
    all == whole.end() ? whole.push_back(look) : add_settings(all->settings, look.settings);
    const bool is_new = std::ranges::none_of(single, [&](const RowLook& other) { return is_same(other, look); });
    if (is_new && single.size() < kTried) single.push_back(look);
  }
  whole.insert(whole.end(), single.begin(), single.end());
  return whole;
}

/// The look with which most rows are alike and most of them is read, and how many rows have another shape.
RowLook best_look(const std::vector<LookedAt>& rows, ChatTemplates templates) {
  RowLook best;
  Trial found;
  for (const RowLook& look : different_looks(rows)) {
    Trial trial = trial_of(rows, look, templates);
    if (std::pair(trial.alike, trial.columns) <= std::pair(found.alike, found.columns)) continue;
    best = look;
    found = std::move(trial);
  }
  std::vector<std::string> others;
  for (const auto& [name, count] : found.shapes)
    if (name != best.name) others.push_back(fmt::format("{} of {}", count, name));
  if (!others.empty())
    best.warnings.push_back(
        fmt::format("not all rows are alike: of {} that were looked at, {} have the shape {}, but {}", rows.size(),
                    found.alike, best.name, fmt::join(others, ", ")));
  return best;
}

/// Leaves out what rows may have besides, if only later rows have it: such a mapping would be refused.
void drop_late_columns(Json& settings, const RawRows& rows) {
  for (const char* role : {"input", "system"}) {
    const Json mapping = settings.value("column_mapping", Json::object());
    if (!mapping.contains(role)) continue;
    try {
      map_for({.columns = {{role, mapping.at(role)}}}, rows, {});
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      settings["column_mapping"].erase(role);
      if (settings["column_mapping"].empty()) settings.erase("column_mapping");
    }
  }
}

}  // namespace

RowLook look_at_row(const Json& row, ChatTemplates templates, const std::string& text_field) {
  RowLook look;
  const bool is_given = !text_field.empty();
  const ShapeRules rules{.text_field = is_given ? text_field : "text",
                         .chat_template = templates == ChatTemplates::some};
  const std::string_view name = shape_name(row, rules);
  if (!is_given || name != "text") look.settings = settings_for(row, name, templates);
  if (is_given) look.settings["dataset_text_field"] = text_field;
  const Reading reading = read_with(row, look.settings, templates);
  look.name = reading.name;
  look.shape = reading.sample.shape;
  add_unread(look, row, reading);
  return look;
}

RowLook look_at_rows(const RawRows& rows, ChatTemplates templates, const std::string& text_field) {
  constexpr std::int64_t kLooked = 200;
  const RawRows some = spread_rows(rows, kLooked);
  std::vector<LookedAt> all;
  std::optional<Error> wrong;
  for (std::int64_t i = 0; i < some.size(); ++i) {
    try {
      with_place(some.place(i), [&] {
        const Json row = some.parse(i);
        all.push_back({row, look_at_row(row, templates, text_field)});
      });
    } catch (const Error& e) {  // of a few rows; their preparation says more
      if (e.kind() != ErrorKind::input) throw;
      if (!wrong) wrong = e;
    }
  }
  if (all.empty()) throw *wrong;
  RowLook best = best_look(all, templates);
  drop_late_columns(best.settings, rows);
  best.unread.clear();
  for (const auto& [row, look] : all) try {
      const Reading reading = read_with(row, best.settings, templates);
      if (reading.name == best.name) add_unread(best, row, reading);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
    }
  return best;
}

// "Frage as instruction, Antwort as output".
std::string reason_of(const std::string& key, const Json& value) {
  if (key == "dataset_text_field" && value == kNoText)
    return "the rows have questions and answers, so their column text is not read";
  std::vector<std::string> uses;
  if (value.is_object()) {
    if (value.value("instruction", "") == "prompt" && value.value("output", "") == "completion")
      return "questions and answers go through the chat template; as prompt and completion they would just be joined";
    for (const auto& [ours, theirs] : value.items())
      uses.push_back(fmt::format("{} as {}", shown_name(theirs.get<std::string>()), ours));
  }
  return fmt::format("by the names of the columns{}{}", uses.empty() ? "" : ": ", fmt::join(uses, ", "));
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
