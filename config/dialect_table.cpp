#include "config/dialect_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <ranges>

#include "config/keys.h"
#include "config/yaml.h"
#include "text/template/jinja/interpreter.h"
#include "text/template/jinja/parser.h"
#include "text/template/python/json.h"

namespace qtrain {

/// The embedded tables (fields.yaml, ...) by file name without extension.
const std::map<std::string_view, std::string_view>& table_texts();

namespace {

/// Keys of a YAML mapping are text; these stand for JSON values.
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

DialectTable read_table(std::string_view name, std::string_view yaml) {
  DialectTable table{.name = std::string(name), .data = parse_yaml(yaml, fmt::format("{}.yaml", name)).value};
  for (const auto& [name, row] : table.object("translated").items()) table.rows.push_back(translated_row(name, row));
  for (const auto& [section, status] :
       {std::pair("ignored", KeyStatus::ignored), std::pair("warned", KeyStatus::warned),
        std::pair("unsupported", KeyStatus::unsupported), std::pair("described", KeyStatus::described)})
    for (const auto& [reason, keys] : table.object(section).items())
      for (const auto& [name, values] : keys.items())
        table.rows.push_back({.name = name, .status = status, .neutral = neutral_values(values), .reason = reason});
  for (const auto& [part, names] : table.object("members").items())
    for (const Json& name : names)
      table.rows.push_back({.name = fmt::format("{}.{}", part, name.get_ref<const std::string&>()),
                            .status = KeyStatus::ignored,
                            .reason = "how ranks share weights and states follows from zero_stage"});
  return table;
}

using Keys = std::vector<std::string_view>;

Keys keys_in(const Json& document, Keys keys) {
  std::erase_if(keys, [&](std::string_view key) { return !document.contains(key); });
  return keys;
}

/// A dialect and the keys of a document that identify it.
struct DialectClaim {
  const DialectTable* dialect;
  Keys keys;
};

/// The keys that identify a dialect: sure ones, or two usual ones that no other dialect has.
Keys deciding_keys(const DialectTable& dialect, const Json& document) {
  Keys sure = keys_in(document, dialect.list("sure")), usual = keys_in(document, dialect.list("usual"));
  if (!sure.empty() || document.contains("model_name_or_path")) return sure;
  std::erase_if(usual, [&](std::string_view key) {
    return std::ranges::any_of(dialects(), [&](const DialectTable* other) {
      return other != &dialect && (other->lists("sure", key) || other->lists("usual", key));
    });
  });
  return usual.size() >= 2 ? usual : Keys();
}

/// The dialects that a document may have, without those whose keys are all usual in another of them: `lr_scheduler`
/// decides nothing next to `sample_packing`.
std::vector<DialectClaim> claims_on(const Json& document) {
  std::vector<DialectClaim> all, own;
  for (const DialectTable* d : dialects())
    if (Keys keys = deciding_keys(*d, document); !keys.empty()) all.push_back({d, std::move(keys)});
  std::ranges::copy_if(all, std::back_inserter(own), [&](const DialectClaim& claim) {
    return std::ranges::none_of(all, [&](const DialectClaim& other) {
      return other.dialect != claim.dialect &&
             std::ranges::all_of(claim.keys, [&](std::string_view key) { return other.dialect->lists("usual", key); });
    });
  });
  return own;
}

std::string dialect_names() {
  return fmt::format("{}", fmt::join(dialects() | std::views::transform(&DialectTable::name), ", "));
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
  return std::ranges::find(object(member), Json(name)) != object(member).end();
}

const Json& DialectTable::object(std::string_view member) const {
  static const Json kNone = Json::object();
  const auto at = data.find(std::string(member));
  return at == data.end() ? kNone : *at;
}

const DialectTable& dialect_table(std::string_view name) {
  static const std::map<std::string_view, DialectTable> kTables = [] {
    std::map<std::string_view, DialectTable> all;
    for (const auto& [name, yaml] : table_texts()) all.emplace(name, read_table(name, yaml));
    return all;
  }();
  return kTables.at(name);
}

const DialectTable& common_table() {
  static const DialectTable& kTable = dialect_table("hf");
  return kTable;
}

const std::vector<const DialectTable*>& dialects() {
  static const std::vector<const DialectTable*> kDialects{&common_table(), &dialect_table("expert"),
                                                          &dialect_table("modelforge"), &dialect_table("llamafactory"),
                                                          &dialect_table("axolotl")};
  return kDialects;
}

const DialectTable& detect_dialect(const Json& document, std::string_view name) {
  if (const auto it = document.find("dialect"); it != document.end() && it->is_string()) {
    const auto at = std::ranges::find(dialects(), it->get<std::string>(), &DialectTable::name);
    if (at != dialects().end()) return **at;
    fail(ErrorKind::usage, {.cause = fmt::format("unknown config dialect {}", show(*it)),
                            .place = "dialect",
                            .remedy = fmt::format("choose one of {}", dialect_names())});
  }
  const std::vector<DialectClaim> claims = claims_on(document);
  if (claims.size() > 1)
    fail(ErrorKind::usage,
         {.cause = fmt::format("\"{}\" is a key of the dialect {} and \"{}\" one of {}; their defaults differ",
                               claims[0].keys[0], claims[0].dialect->name, claims[1].keys[0], claims[1].dialect->name),
          .place = std::string(name),
          .remedy =
              fmt::format("use the names of one dialect, or name it with \"dialect\": one of {}", dialect_names())});
  if (!claims.empty()) return *claims[0].dialect;
  if (!document.contains("model_name_or_path"))
    for (const DialectTable* d : dialects())
      if (keys_in(document, d->list("usual")).size() >= 2) return *d;
  return common_table();
}

std::string filled(std::string_view text, const Json& values) {
  const ParsedTemplate parsed = parse_template(text);
  TemplateRun run(parsed, 0);
  for (const auto& [name, value] : values.items())
    if (text.find(name) != text.npos) run.define(name, py_from_json(value));
  return run.render().text;
}

}  // namespace qtrain
