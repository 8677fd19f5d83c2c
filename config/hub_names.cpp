#include "config/hub_names.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <utility>

#include "config/dialect_table.h"
#include "hub/cache.h"
#include "hub/environment.h"

namespace qtrain {
namespace {

HubCache user_cache() {
  return HubCache(hub_environment().cache);
}

/// Looks for what a key names. A revision in the name wins over `revision`. None if the name is not in the cache and
/// has no owner: it is more likely a path that does not exist.
std::optional<NamedOnHub> look_up(std::string key, HubName name, const std::string& revision) {
  if (!revision.empty() && !name.has_revision) {
    if (!is_revision(revision))
      fail(ErrorKind::usage, {.cause = fmt::format("{} is not a revision: a branch, a tag or a commit", revision)});
    name.revision = revision;
  }
  NamedOnHub named{.key = std::move(key), .name = name};
  named.place = user_cache().find(name);
  return named.place || name.has_owner() ? std::optional(std::move(named)) : std::nullopt;
}

std::string text_of(const Draft& draft, const std::string& key) {
  const Setting* setting = draft.find(key);
  return setting && setting->value.is_string() ? setting->value.get<std::string>() : "";
}

/// Applies a change to every text in a list of files.
void change_texts(Json& list, const std::function<std::string(const std::string&)>& change) {
  if (list.is_string()) list = change(list.get<std::string>());
  if (list.is_array())
    for (Json& one : list) change_texts(one, change);
}

}  // namespace

std::vector<NamedOnHub> find_models(Draft& draft) {
  constexpr std::array<const char*, 3> kKeys = {"model_name_or_path", "tokenizer_name_or_path", "adapter_name_or_path"};
  const std::string revision = text_of(draft, "model_revision"), model = text_of(draft, "model_name_or_path");
  std::vector<NamedOnHub> all;
  for (const char* key : kKeys) {
    const std::string text = text_of(draft, key);
    const auto name = hub_name_unless_path(RepoKind::model, text);
    if (!name) continue;
    try {
      auto named = look_up(key, *name, text == model ? revision : "");
      if (!named) continue;
      if (named->place) draft.settings[key] = draft.find(key)->with(named->place->path.string());
      all.push_back(std::move(*named));
    } catch (const Error& e) {  // adds the place
      draft.diagnostics.problem(draft.find(key)->place, e.what());
    }
  }
  return all;
}

void change_datasets(Config& config, const ChangeDataset& change) {
  for (auto [key, list] : {std::pair("dataset_name", &config.data.dataset_name),
                           std::pair("eval_dataset_name", &config.data.eval_dataset_name)})
    for (std::string& entry : *list) entry = change({.key = key, .text = entry});
  for (Json& entry : config.data.dataset_mixture) {
    const Json given = entry.is_object() ? entry.value("revision", Json()) : Json();
    const std::string revision = given.is_string() ? given.get<std::string>() : "";
    const auto change_one = [&](const std::string& text) {
      return change({.key = "dataset_mixture", .text = text, .revision = revision});
    };
    if (!entry.is_object()) {
      change_texts(entry, change_one);
      continue;
    }
    const Json path = entry.value("path", Json());
    const bool named = path.is_string() && path != "" &&
                       !dialect_table("datasets").lists("builders", path.get_ref<const std::string&>());
    if (named)
      change_texts(entry["path"], change_one);
    else if (entry.contains("data_files"))
      change_texts(entry["data_files"], change_one);
    entry.erase("revision");
  }
}

std::vector<NamedOnHub> find_datasets(Config& config) {
  std::vector<NamedOnHub> found;
  change_datasets(config, [&](const DatasetText& given) {
    const auto name = hub_name_unless_path(RepoKind::dataset, given.text);
    auto named = name ? look_up(given.key, *name, given.revision) : std::nullopt;
    if (!named) return given.text;
    found.push_back(std::move(*named));
    return found.back().place ? found.back().place->path.string() : found.back().name.text();
  });
  return found;
}

ErrorText not_found(const NamedOnHub& named) {
  return {.cause = fmt::format("{} is not on this machine: {}", named.key, user_cache().why_missing(named.name)),
          .place = named.name.text(),
          .remedy = "add --fetch to fetch it, or name a folder"};
}

}  // namespace qtrain
