#include "config/launcher_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "config/keys.h"
#include "optim/table.h"

namespace qtrain {
namespace {

/// Whether a dotted key is a member of this one.
bool holds(std::string_view part, std::string_view key) {
  return key.size() > part.size() && key.starts_with(part) && key[part.size()] == '.';
}

/// The row of a key, or of a part that it is in.
const KeyRow* row_of(const DialectTable& table, std::string_view key) {
  if (const KeyRow* row = table.find(key)) return row;
  const auto at =
      std::ranges::find_if(table.rows, [&](const KeyRow& row) { return !row.is_translated() && holds(row.name, key); });
  return at == table.rows.end() ? nullptr : &*at;
}

/// The paths before a value: in the object, with a dot behind it, and of the object in its document.
struct LeafPath {
  std::string key, object;
};
/// Adds every value in an object that is none itself.
void add_leaves(const ConfigDocument& document, const Json& object, const LeafPath& path, Leaves& out) {
  for (const auto& [name, value] : object.items()) {
    const std::string key = path.key + name, written = path.object + key;
    if (value.is_object() && !value.empty())
      add_leaves(document, value, {key + ".", path.object}, out);
    else
      out.push_back({key, written, document.place_of(written), value});
  }
}

}  // namespace

Json Leaf::plain() const {
  if (!value.is_string()) return value;
  std::string lower = value.get<std::string>();
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower == "true" || lower == "false") return lower == "true";
  return lower;
}

void LauncherRows::open(const Setting& setting, const ConfigDocument& config, std::string_view launcher,
                        const std::function<void(const Leaves&, const ConfigDocument&)>& read) {
  const auto read_object = [&](const ConfigDocument& document, const Json& object, const std::string& path) {
    Leaves leaves;
    add_leaves(document, object, {"", path}, leaves);
    read(leaves, document);
    tell_ignored(document.name, launcher);
  };
  if (says_nothing(setting.value)) return;
  if (setting.value.is_object()) return read_object(config, setting.value, setting.written + ".");
  if (!setting.value.is_string())
    return draft_.judge.problem(setting.place, fmt::format("\"{}\" expected a file or an object, got {}",
                                                           setting.written, show(setting.value)));
  const auto name = setting.value.get<std::string>();
  const auto file = draft_.named_file(name);
  if (!file)
    return draft_.judge.problem(setting.place, fmt::format("\"{}\": no such file \"{}\"", setting.written, name),
                                "paths are looked for as they stand and beside the config");
  try {
    const ConfigDocument document = read_config_document(*file);
    if (document.value.is_object()) return read_object(document, without_comments(document.value), "");
    draft_.judge.problem(document.name, fmt::format("a configuration of {} is an object of keys and values, not {}",
                                                    launcher, show(document.value)));
  } catch (const Error& e) {  // one problem among others
    draft_.judge.problem(e.text());
  }
}

void LauncherRows::apply(std::string_view name, const Leaf& leaf) {
  const DialectTable& table = dialect_table(name);
  const KeyRow* row = row_of(table, leaf.key);
  if (row == nullptr) return unknown(leaf, table.names());
  for (const auto& [value, text] : row->notes)
    if (leaf.value == value) draft_.judge.note(leaf.place, fmt::format("\"{}\": {}", leaf.written, text));
  if (row->is_translated()) return leaf.value == "auto" ? void() : translate_leaf(*row, leaf);
  if (row->status == KeyStatus::ignored) return row->reason.empty() ? void() : ignore(leaf);
  const bool decides = row->name.ends_with('*') || leaf.key == row->name || leaf.key == row->name + ".enabled";
  if (decides && !says_nothing(leaf.value)) refuse(leaf, row->reason);
}

void LauncherRows::translate_leaf(const KeyRow& row, const Leaf& leaf) {
  const Json plain = leaf.plain();
  for (const auto& [refused, why] : row.refused)
    if (plain == refused) return refuse(leaf, why, row.remedy);
  if (!row.convert.empty()) return conversions_.at(row.convert)(leaf);
  if (row.target.empty()) return ignore(leaf);
  if (row.map.empty()) return set(leaf, row.target, leaf.value);
  if (const Json* ours = row.meaning(plain)) return set(leaf, row.target, *ours);
  if (!row.otherwise.empty() && !says_nothing(leaf.value)) refuse(leaf, row.otherwise, row.remedy);
}

/// Names of one optimizer that differ in how it is computed do not contradict each other, nor do kinds of
/// recomputation.
void LauncherRows::set(const Leaf& leaf, const std::string& key, const Json& value) {
  const Setting* given = draft_.find(key);
  if (!given) return draft_.offer(key, {leaf.written, leaf.place, value});
  const auto rule = [](const Json& name) {
    const NamedOptimizer* o = name.is_string() ? find_optimizer(name.get<std::string>()) : nullptr;
    return o ? o->rule : "?";
  };
  const bool same = given->value == value || (key == "optim" && rule(given->value) == rule(value)) ||
                    (key == "gradient_checkpointing" && given->value.is_string());
  if (!same)
    differ(leaf, value, *given,
           "the two have to be equal: \"auto\" in the former, or its removal, takes over the latter");
}

void LauncherRows::differ(const Leaf& leaf, const Json& value, const Setting& given, std::string remedy) {
  draft_.judge.problem(leaf.place,
                       fmt::format("\"{}\" is {}, but \"{}\" is {} ({})", leaf.written, show(value), given.written,
                                   show(given.value), given.place),
                       std::move(remedy));
}

void LauncherRows::refuse(const Leaf& leaf, std::string_view why, std::string_view remedy) {
  draft_.judge.problem(leaf.place, fmt::format("\"{}\": {} cannot be honored: {}", leaf.written, show(leaf.value), why),
                       std::string(remedy.empty() ? "remove the key" : remedy));
}

void LauncherRows::ignore(const Leaf& leaf) {
  if (!says_nothing(leaf.value))
    ignored_.push_back(
        {.level = RemarkLevel::silent, .origin = leaf.place, .ignored = leaf.written, .value = leaf.value});
}

void LauncherRows::unknown(const Leaf& leaf, const std::vector<std::string_view>& known) {
  if (std::ranges::any_of(known, [&](std::string_view name) { return holds(leaf.key, name); })) {
    if (!says_nothing(leaf.value))
      draft_.judge.problem(leaf.place,
                           fmt::format("\"{}\" expected an object, got {}", leaf.written, show(leaf.value)));
    return;
  }
  const std::string near = hint(draft_.judge, leaf.key, known);
  draft_.judge.problem(leaf.place, fmt::format("unknown key \"{}\"", leaf.written),
                       near.empty() ? "remove the key" : fmt::format("did you mean \"{}\"?", near));
}

/// Once for all keys of a file.
void LauncherRows::tell_ignored(const std::string& name, std::string_view launcher) {
  if (ignored_.empty()) return;
  constexpr std::size_t kShown = 4;
  const std::string why = fmt::format("{} without effect here, on one device", launcher);
  std::vector<std::string> shown;
  for (Remark& remark : ignored_) {
    if (shown.size() < kShown) shown.push_back(remark.ignored);
    remark.text = why;
  }
  const std::size_t all = ignored_.size();
  draft_.judge.note(name, fmt::format("{} {} of {}: {}{}", all, all == 1 ? "key" : "keys", why, fmt::join(shown, ", "),
                                      all > kShown ? fmt::format(" and {} more", all - kShown) : ""));
  for (Remark& remark : std::exchange(ignored_, {})) draft_.judge.say(std::move(remark));
}

}  // namespace qtrain
