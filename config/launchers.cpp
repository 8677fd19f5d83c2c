#include "config/launchers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/keys.h"

namespace qtrain {
namespace {

void add_leaves(const Json& value, const std::string& key, std::vector<std::pair<std::string, Json>>& out) {
  if (!value.is_object() || value.empty()) return out.emplace_back(key, value), void();
  for (const auto& [name, member] : value.items()) add_leaves(member, key.empty() ? name : key + "." + name, out);
}

/// Names that trl knows files for.
bool is_launch_preset(const Json& value) {
  constexpr std::string_view kPresets[] = {"single_gpu", "multi_gpu", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};
  return value.is_string() &&
         std::find(std::begin(kPresets), std::end(kPresets), value.get_ref<const std::string&>()) != std::end(kPresets);
}

}  // namespace

bool says_nothing(const Json& value) {
  for (const Json& nothing : {Json(), Json(false), Json(0), Json(""), Json("none"), Json("auto")})
    if (value == nothing) return true;
  return value.is_structured() && value.empty();
}

bool covers(std::string_view part, std::string_view key) {
  return key.starts_with(part) && (key.size() == part.size() || key[part.size()] == '.');
}

std::optional<std::filesystem::path> Draft::named_file(const std::string& name) const {
  std::error_code ignored;
  for (const std::filesystem::path& path : {std::filesystem::path(name), folder / name})
    if (std::filesystem::is_regular_file(path, ignored)) return path;
  return {};
}

std::vector<LauncherReader::Leaf> LauncherReader::leaves_of(const LauncherPart& part) {
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
    return draft_.problem(setting.place, fmt::format("\"{}\" expected a file or an object, got {}", setting.written,
                                                     show(setting.value)));
  const auto name = setting.value.get<std::string>();
  const auto file = draft_.named_file(name);
  if (!file)
    return draft_.problem(setting.place, fmt::format("\"{}\": no such file \"{}\"", setting.written, name),
                          "paths are looked for as they stand and beside the config");
  try {
    const ConfigDocument document = read_config_document(*file);
    if (document.value.is_object()) return read({document, without_comments(document.value)});
    draft_.problem(document.name,
                   fmt::format("{} is an object of keys and values, not {}", what, show(document.value)));
  } catch (const Error& e) {  // one problem among others
    draft_.problems.push_back(e.text());
  }
}

void LauncherReader::set(const Leaf& leaf, const std::string& key, const Json& value) {
  const Setting* given = draft_.find(key);
  if (!given) return draft_.offer(key, {leaf.written, leaf.place, value});
  if (given->value == value) return;
  draft_.problem(leaf.place,
                 fmt::format("\"{}\" is {}, but \"{}\" is {} ({})", leaf.written, show(value), given->written,
                             show(given->value), given->place),
                 "the two have to be equal: \"auto\" in the former, or its removal, takes over the latter");
}

void LauncherReader::refuse(const Leaf& leaf, std::string why, std::string remedy) {
  draft_.problem(leaf.place, fmt::format("\"{}\": {} cannot be honored: {}", leaf.written, show(leaf.value), why),
                 std::move(remedy));
}

void LauncherReader::ignore(const Leaf& leaf) {
  if (!says_nothing(leaf.value)) ignored_[leaf.written] = leaf.value;
}

void LauncherReader::unknown(const Leaf& leaf, std::span<const std::string_view> known) {
  constexpr std::size_t kMostHints = 20;  // each takes a look at all names
  const auto near = draft_.problems.size() < kMostHints ? nearest(leaf.key, known) : std::string_view();
  if (near == leaf.key && leaf.value.is_object() && leaf.value.empty()) return;  // a part that asks for nothing
  draft_.problem(leaf.place, fmt::format("unknown key \"{}\"", leaf.written),
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
  draft_.remarks.push_back(fmt::format("{}: {} {} of {}: {}{}", part.document.name, ignored_.size(),
                                       ignored_.size() == 1 ? "key" : "keys", why, fmt::join(names, ", "),
                                       more ? fmt::format(" and {} more", more) : ""));
  for (const auto& [key, value] : ignored_.items())
    draft_.inert[key] = {{"value", value}, {"origin", part.document.place_of(key)}, {"reason", why}};
  ignored_ = Json::object();
}

void add_launcher_settings(Draft& draft, const ConfigDocument& config) {
  LauncherReader reader(draft);
  const auto pending = [&](std::string_view key) { return draft.find(kPending + std::string(key)); };
  if (const Setting* s = pending("accelerate_config"); s && is_launch_preset(s->value))
    draft.remarks.push_back(
        fmt::format("{}: \"{}\": {} has no effect on one device", s->place, s->written, show(s->value)));
  else if (s)
    reader.open(*s, config, "an accelerate config", [&](const LauncherPart& part) { reader.accelerate(part); });
  if (const Setting* s = pending("deepspeed"))
    reader.open(*s, config, "a DeepSpeed config", [&](const LauncherPart& part) { reader.deepspeed(part); });
  reader.fsdp(pending("fsdp"), pending("fsdp_config"), config);
}

}  // namespace qtrain
