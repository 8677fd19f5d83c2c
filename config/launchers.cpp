#include "config/launchers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "config/keys.h"

namespace qtrain {
namespace {

void add_leaves(const Json& value, const std::string& key, std::vector<std::pair<std::string, Json>>& out) {
  if (!value.is_object() || value.empty()) return out.emplace_back(key, value), void();
  for (const auto& [name, member] : value.items()) add_leaves(member, key.empty() ? name : key + "." + name, out);
}

/// Whether a dotted key is this one or a member of it.
bool covers(std::string_view part, std::string_view key) {
  return key.starts_with(part) && (key.size() == part.size() || key[part.size()] == '.');
}

/// The row of a key, or of a part that it is in.
const KeyRow* row_of(const DialectTable& table, std::string_view key) {
  if (const KeyRow* row = table.find(key)) return row;
  const auto at = std::ranges::find_if(
      table.rows, [&](const KeyRow& row) { return !row.is_translated() && covers(row.name, key); });
  return at == table.rows.end() ? nullptr : &*at;
}

/// Names that unknown keys are held against.
std::vector<std::string_view> names_in(const DialectTable& table) {
  std::vector<std::string_view> names;
  for (const KeyRow& row : table.rows)
    if (!row.name.ends_with('*')) names.emplace_back(row.name);
  return names;
}

bool is_launch_preset(const Json& value) {
  const auto& presets = dialect_table("accelerate").object("presets");
  return std::ranges::find(presets, value) != presets.end();
}

}  // namespace

bool says_nothing(const Json& value) {
  for (const Json& nothing : {Json(), Json(false), Json(0), Json(""), Json("none"), Json("auto")})
    if (value == nothing) return true;
  return value.is_structured() && value.empty();
}

std::optional<std::filesystem::path> Draft::named_file(const std::string& name) const {
  std::error_code ignored;
  for (const std::filesystem::path& path : {std::filesystem::path(name), folder / name})
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  return {};
}

std::vector<Leaf> LauncherReader::leaves_of(const LauncherPart& part) {
  std::vector<std::pair<std::string, Json>> found;
  if (!part.value.empty()) add_leaves(part.value, "", found);
  std::vector<Leaf> leaves;
  for (auto& [key, value] : found) {
    const std::string written = part.path + key;
    leaves.push_back({key, written, part.document.place_of(written), std::move(value)});
  }
  return leaves;
}

void LauncherReader::open(const Setting& setting, const ConfigDocument& config, std::string_view what,
                          const std::function<void(const LauncherPart&)>& read) {
  if (says_nothing(setting.value)) return;
  if (setting.value.is_object()) return read({config, setting.value, setting.written + "."});
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
    if (document.value.is_object()) return read({document, without_comments(document.value)});
    draft_.judge.problem(document.name,
                         fmt::format("{} is an object of keys and values, not {}", what, show(document.value)));
  } catch (const Error& e) {  // one problem among others
    draft_.judge.problem(e.text());
  }
}

void LauncherReader::set(const Leaf& leaf, const std::string& key, const Json& value) {
  const Setting* given = draft_.find(key);
  if (!given) return draft_.offer(key, {leaf.written, leaf.place, value});
  if (given->value == value) return;
  draft_.judge.problem(leaf.place,
                       fmt::format("\"{}\" is {}, but \"{}\" is {} ({})", leaf.written, show(value), given->written,
                                   show(given->value), given->place),
                       "the two have to be equal: \"auto\" in the former, or its removal, takes over the latter");
}

void LauncherReader::refuse(const Leaf& leaf, std::string why, std::string remedy) {
  draft_.judge.problem(leaf.place, fmt::format("\"{}\": {} cannot be honored: {}", leaf.written, show(leaf.value), why),
                       std::move(remedy));
}

void LauncherReader::apply(const DialectTable& table, const Leaf& leaf) {
  const KeyRow* row = row_of(table, leaf.key);
  if (row == nullptr) return unknown(leaf, names_in(table));
  if (row->is_translated()) return convert(*row, leaf);
  if (row->status == KeyStatus::ignored) return row->reason.empty() ? void() : ignore(leaf);
  const bool decides = row->name.ends_with('*') || leaf.is(row->name) || leaf.is(row->name + ".enabled");
  if (decides && !says_nothing(leaf.value)) refuse(leaf, row->reason);
}

void LauncherReader::convert(const KeyRow& row, const Leaf& leaf) {
  struct Conversion {
    std::string_view name;
    void (LauncherReader::*apply)(const KeyRow&, const Leaf&);
  };
  static constexpr auto kConversions = std::to_array<Conversion>({
      {"optimizer", &LauncherReader::optimizer},
      {"betas", &LauncherReader::betas},
      {"adam_variant", &LauncherReader::adam_variant},
      {"schedule", &LauncherReader::schedule},
      {"warmup_steps", &LauncherReader::warmup_steps},
      {"total_steps", &LauncherReader::total_steps},
      {"warmup_start", &LauncherReader::warmup_start},
      {"schedule_floor", &LauncherReader::schedule_floor},
      {"offload", &LauncherReader::offload},
      {"nothing", &LauncherReader::nothing},
      {"part", &LauncherReader::part},
      {"recomputation", &LauncherReader::recomputation},
      {"switch", &LauncherReader::turn_on},
      {"xla", &LauncherReader::xla},
      {"precision", &LauncherReader::precision},
      {"processes", &LauncherReader::processes},
      {"processor", &LauncherReader::processor},
  });
  if (row.convert.empty()) return leaf.value == "auto" ? void() : set(leaf, row.target, leaf.value);
  const auto at = std::ranges::find(kConversions, row.convert, &Conversion::name);
  check(at != kConversions.end(), "a table names a conversion that is missing");
  (this->*at->apply)(row, leaf);
}

// A part whose members have rows: here it is empty, or no object.
void LauncherReader::part(const KeyRow&, const Leaf& leaf) {
  if (!says_nothing(leaf.value))
    draft_.judge.problem(leaf.place, fmt::format("\"{}\" expected an object, got {}", leaf.written, show(leaf.value)));
}

void LauncherReader::ignore(const Leaf& leaf) {
  if (!says_nothing(leaf.value)) ignored_[leaf.written] = leaf.value;
}

void LauncherReader::unknown(const Leaf& leaf, const std::vector<std::string_view>& known) {
  constexpr std::size_t kMostHints = 20;  // each takes a look at all names
  const auto near = draft_.judge.count_problems() < kMostHints ? nearest(leaf.key, known) : std::string_view();
  if (near == leaf.key && leaf.value.is_object() && leaf.value.empty()) return;  // a part that asks for nothing
  draft_.judge.problem(leaf.place, fmt::format("unknown key \"{}\"", leaf.written),
                       near.empty() ? "remove the key" : fmt::format("did you mean \"{}\"?", near));
}

// Once for all keys of a file.
void LauncherReader::tell_ignored(const LauncherPart& part, std::string_view what) {
  if (ignored_.empty()) return;
  constexpr std::size_t kShown = 4;
  std::vector<std::string> names;
  for (const auto& [key, value] : ignored_.items()) names.push_back(key);
  const std::size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  const std::string why = fmt::format("{} without effect here, on one device", what);
  draft_.judge.note(part.document.name,
                    fmt::format("{} {} of {}: {}{}", ignored_.size(), ignored_.size() == 1 ? "key" : "keys", why,
                                fmt::join(names, ", "), more ? fmt::format(" and {} more", more) : ""));
  for (const auto& [key, value] : ignored_.items())
    draft_.judge.say({.level = RemarkLevel::silent,
                      .origin = part.document.place_of(key),
                      .text = why,
                      .ignored = key,
                      .value = value});
  ignored_ = Json::object();
}

void add_launcher_settings(Draft& draft, const ConfigDocument& config) {
  LauncherReader reader(draft);
  const auto pending = [&](std::string_view key) { return draft.find(kPending + std::string(key)); };
  if (const Setting* s = pending("accelerate_config"); s && is_launch_preset(s->value))
    draft.judge.note(s->place, fmt::format("\"{}\": {} has no effect on one device", s->written, show(s->value)));
  else if (s)
    reader.open(*s, config, "an accelerate config", [&](const LauncherPart& part) { reader.accelerate(part); });
  if (const Setting* s = pending("deepspeed"))
    reader.open(*s, config, "a DeepSpeed config", [&](const LauncherPart& part) { reader.deepspeed(part); });
  reader.fsdp(pending("fsdp"), pending("fsdp_config"), config);
}

}  // namespace qtrain
