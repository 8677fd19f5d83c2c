#include "config/reference.h"
#include "config/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/dialect_table.h"
#include "optim/table.h"

namespace qtrain {
namespace {

std::string escaped(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

/// As code.
std::string code(std::string_view text) {
  return fmt::format("`{}`", text);
}

std::string row(std::initializer_list<std::string> cells) {
  std::string line = "|";
  for (const std::string& cell : cells) line += " " + escaped(cell) + " |";
  return line + "\n";
}

std::string type_of(const Field& field) {
  const std::string range = field.range.text();
  return range.empty() ? field.type : field.type + ", " + range;
}

std::vector<std::string> aliases_of(const std::string& key) {
  return common_table().object("also").value(key, std::vector<std::string>());
}

std::string fields_part() {
  std::string out, section;
  const Config defaults;
  for (const Field& f : fields()) {
    if (f.section != section) out += fmt::format("\n## {}\n\n| key | default | meaning |\n|---|---|---|\n", f.section);
    section = f.section;
    const std::string type = f.name == "optim" ? "a name from the list below" : type_of(f);
    const std::vector<std::string> also = aliases_of(f.name);
    const std::string names = also.empty() ? "" : fmt::format(" Also `{}`.", fmt::join(also, "`, `"));
    out += row({code(f.name), code(f.read(defaults).dump()), fmt::format("{} ({}){}", f.doc, type, names)});
  }
  return out;
}

std::string translated_rows(const DialectTable& table) {
  std::string rows;
  for (const KeyRow& k : table.rows)
    if (!k.about.empty()) rows += row({code(k.name), k.about});
  return rows.empty() ? "" : "\n| key | meaning |\n|---|---|\n" + rows;
}

/// Keys that only this dialect has.
std::string own_keys(const DialectTable& table) {
  std::string out = translated_rows(table);
  for (const auto& [status, what] : {std::pair(KeyStatus::ignored, "Accepted without effect, with one line at start"),
                                     std::pair(KeyStatus::warned, "Accepted without effect, with a warning"),
                                     std::pair(KeyStatus::unsupported, "Refused where they would change a result")}) {
    std::vector<std::string_view> names;
    for (const KeyRow& k : table.rows)
      if (k.status == status) names.emplace_back(k.name);
    if (!names.empty()) out += fmt::format("\n{}: `{}`.\n", what, fmt::join(names, "`, `"));
  }
  return out;
}

/// A paragraph of the page.
std::string text_of(const char* name) {
  return std::string(dialect_table("reference").text(name)) + "\n";
}

std::string dialect_part() {
  std::string out = "\n## Dialects\n\n" + text_of("dialects");
  for (const DialectTable* d : dialects()) {
    const DialectTable& table = *d;
    const std::string about(table.text("about"));
    out += fmt::format("\n### {}\n\n{}{}.\n", table.name, static_cast<char>(std::toupper(about[0])), about.substr(1));
    const std::vector<std::string_view> sure = table.list("sure"), usual = table.list("usual");
    if (!sure.empty()) out += fmt::format("One of `{}` says so.\n", fmt::join(sure, "`, `"));
    if (!usual.empty())
      out += fmt::format("So do two of `{}` without `model_name_or_path`.\n", fmt::join(usual, "`, `"));
    const Json& defaults = table.object("defaults");
    if (!defaults.empty()) out += "\n| key | default |\n|---|---|\n";
    for (const auto& [key, value] : defaults.items()) out += row({code(key), code(value.dump())});
    if (&table != &common_table()) out += own_keys(table);
  }
  return out;
}

std::string other_names_part() {
  return "\n## Keys that stand for others\n" + translated_rows(common_table()) + "\n" + text_of("launchers") +
         fmt::format("\nMembers of `{}` count as if they stood at the top.\n",
                     fmt::join(common_table().list("objects"), "`, `"));
}

std::string ignored_part() {
  std::string ignored = "\n## Keys without effect\n\n" + text_of("ignored") + "\n| key | because |\n|---|---|\n",
              refused = "\n## Keys that are refused\n\n" + text_of("refused") +
                        "\n| key | accepted | because |\n|---|---|---|\n";
  for (const KeyRow& k : common_table().rows) {
    const std::string name = code(k.name);
    if (k.status == KeyStatus::ignored) ignored += row({name, k.reason});
    if (k.status == KeyStatus::unsupported) refused += row({name, code(Json(k.neutral).dump()), k.reason});
  }
  return ignored + refused;
}

}  // namespace

Json config_keys_json() {
  Json keys = Json::object();
  const Config defaults;
  for (const Field& f : fields())
    keys[f.name] = {{"section", f.section},
                    {"default", f.read(defaults)},
                    {"type", type_of(f)},
                    {"also", aliases_of(f.name)},
                    {"meaning", f.doc}};
  return {{"keys", std::move(keys)}};
}

std::string config_reference() {
  std::string out = "# Configuration\n\n" + text_of("config") + "\n" + text_of("defaults") + fields_part();
  std::vector<std::string_view> here = available_optimizers(), others;
  for (const std::string_view name : optimizer_names())
    if (find_optimizer(name)->rule.empty()) others.push_back(name);
  out += fmt::format("\nValues of `optim` ([what they do](optimizers.md)): `{}`. Known and refused: `{}`.\n",
                     fmt::join(here, "`, `"), fmt::join(others, "`, `"));
  return out + dialect_part() + other_names_part() + ignored_part();
}

}  // namespace qtrain
