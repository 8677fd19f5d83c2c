#include "config/dialect_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/document.h"

namespace qtrain {
namespace {

/// Keys of a YAML mapping are text; here they are values.
Json value_of_key(const std::string& key) {
  if (key == "null") return nullptr;
  if (key.starts_with('[')) return Json::parse(key);
  return key.empty() ? Json("") : yaml_plain_value(key);
}

template <class T>
void read_values(const Json& row, const char* member, std::vector<std::pair<Json, T>>& out) {
  if (const auto at = row.find(member); at != row.end())
    for (const auto& [key, meaning] : at->items()) out.emplace_back(value_of_key(key), meaning);
}

KeyRow translated_row(const std::string& name, const Json& row) {
  if (row.is_string()) return {.name = name, .about = row, .target = row};
  KeyRow out{.name = name};
  for (const auto& [member, text] :
       {std::pair("about", &out.about), std::pair("to", &out.target), std::pair("convert", &out.convert),
        std::pair("note", &out.note), std::pair("otherwise", &out.otherwise), std::pair("remedy", &out.remedy)})
    if (row.contains(member)) *text = row.at(member).get<std::string>();
  read_values(row, "map", out.map);
  read_values(row, "unsupported", out.refused);
  read_values(row, "notes", out.notes);
  return out;
}

std::vector<Json> neutral_values(const Json& values) {
  if (values.is_null()) return {};
  if (values == "bool") return {true, false};
  return values.is_array() ? std::vector<Json>(values.begin(), values.end()) : std::vector<Json>{values};
}

DialectTable read_table(const TableText& text) {
  DialectTable table{.name = std::string(text.name),
                     .data = parse_yaml(text.yaml, fmt::format("{}.yaml", text.name)).value};
  for (const auto& [name, row] : table.object("translated").items()) table.rows.push_back(translated_row(name, row));
  for (const auto& [section, status] :
       {std::pair("ignored", KeyStatus::ignored), std::pair("warned", KeyStatus::warned),
        std::pair("unsupported", KeyStatus::unsupported)})
    for (const auto& [reason, keys] : table.object(section).items())
      for (const auto& [name, values] : keys.items())
        table.rows.push_back({.name = name, .status = status, .neutral = neutral_values(values), .reason = reason});
  for (const auto& [part, names] : table.object("members").items())
    for (const Json& name : names)
      table.rows.push_back({.name = fmt::format("{}.{}", part, name.get_ref<const std::string&>()),
                            .status = KeyStatus::ignored,
                            .reason = "without effect here, on one device"});
  for (const auto& [key, names] : table.object("also").items())
    for (const Json& name : names) table.aliases.push_back({name, key});
  return table;
}

const std::vector<DialectTable>& tables() {
  static const std::vector<DialectTable> kTables = [] {
    std::vector<DialectTable> all;
    for (const TableText& text : table_texts()) all.push_back(read_table(text));
    return all;
  }();
  return kTables;
}

}  // namespace

bool KeyRow::is_neutral(const Json& value) const {
  return value.is_null() || std::ranges::find(neutral, value) != neutral.end();
}

const Json* KeyRow::meaning(const Json& value) const {
  const auto at = std::ranges::find_if(map, [&](const auto& entry) { return entry.first == value; });
  return at == map.end() ? nullptr : &at->second;
}

std::vector<std::string_view> DialectTable::names() const {
  std::vector<std::string_view> all;
  for (const KeyRow& row : rows)
    if (!row.name.ends_with('*')) all.emplace_back(row.name);
  return all;
}

const KeyRow* DialectTable::find(std::string_view key) const {
  const auto exact = std::ranges::find_if(rows, [&](const KeyRow& row) { return row.name == key; });
  if (exact != rows.end()) return &*exact;
  const auto begins = std::ranges::find_if(rows, [&](const KeyRow& row) {
    return row.name.ends_with('*') && key.starts_with(std::string_view(row.name).substr(0, row.name.size() - 1));
  });
  return begins == rows.end() ? nullptr : &*begins;
}

std::string_view DialectTable::text(std::string_view member) const {
  return data.at(std::string(member)).get_ref<const std::string&>();
}

std::vector<std::string_view> DialectTable::list(std::string_view member) const {
  std::vector<std::string_view> words;
  if (const auto at = data.find(std::string(member)); at != data.end())
    for (const Json& word : *at) words.emplace_back(word.get_ref<const std::string&>());
  return words;
}

bool DialectTable::lists(std::string_view member, std::string_view name) const {
  return std::ranges::find(object(member), name) != object(member).end();
}

const Json& DialectTable::object(std::string_view member) const {
  static const Json kNone = Json::object();
  const auto at = data.find(std::string(member));
  return at == data.end() ? kNone : *at;
}

const DialectTable& dialect_table(std::string_view name) {
  const auto at = std::ranges::find_if(tables(), [&](const DialectTable& table) { return table.name == name; });
  check(at != tables().end(), "a table of a dialect is missing");
  return *at;
}

const DialectTable& common_table() {
  static const DialectTable& kTable = dialect_table("hf");
  return kTable;
}

}  // namespace qtrain
