#include "app/cli/hub_arguments.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "hub/fetch.h"

namespace qtrain {
namespace {

/// A value that may name a model: "OWNER/NAME", for `serve` also "LABEL=OWNER/NAME".
struct NamedValue {
  std::string label;  ///< with its "="
  std::string text;
};

NamedValue split_label(const Flag& flag, const std::string& value) {
  const std::size_t equals = value.find('=');
  std::error_code ignored;
  if (std::filesystem::exists(value, ignored)) return {.label = "", .text = value};
  if (!flag.value.starts_with("[NAME=]") || equals == value.npos) return {.label = "", .text = value};
  return {.label = value.substr(0, equals + 1), .text = value.substr(equals + 1)};
}

/// The path of what a text names; none if it is a path, or a name without an owner that is not in the cache.
std::optional<std::string> placed(HubFetcher& fetcher, const std::string& text, const std::string& revision,
                                  ModelFiles files) {
  auto name = hub_name_unless_path(RepoKind::model, text);
  if (!name) return {};
  if (!revision.empty() && !name->has_revision) name->revision = revision;
  if (!is_revision(name->revision))
    fail(ErrorKind::usage, {.cause = fmt::format("--revision {} is no branch, tag or commit", name->revision)});
  if (!name->has_owner() && !fetcher.cache().find(*name)) return {};
  return fetch_model(fetcher, *name, files).path.string();
}

}  // namespace

void place_names(Arguments& arguments) {
  const Command& command = arguments.command();
  HubFetcher fetcher({}, arguments.log());
  for (const Flag& flag : command.flags) {
    if (flag.files == ModelFiles::none) continue;
    const std::vector<std::string> values = arguments.all(flag.name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto [label, text] = split_label(flag, values[i]);
      const std::string revision = flag.name == "model" ? arguments.text("revision").value_or("") : "";
      const auto path = placed(fetcher, text, revision, flag.files);
      if (!path) continue;
      if (label.empty() && flag.value.starts_with("[NAME=]")) label = text.substr(text.rfind('/') + 1) + "=";
      arguments.replace(flag.name, i, label + *path);
    }
  }
  if (command.files == ModelFiles::none || arguments.operands().empty()) return;
  if (const auto path = placed(fetcher, arguments.operand(0), "", command.files)) arguments.replace_operand(0, *path);
}

ResolvedConfig load_run_config(const Arguments& arguments, const std::filesystem::path& file,
                               const NeededOfConfig& needed) {
  ResolvedConfig config = load_config(file, arguments.overrides());
  if (config.hub_names.empty()) return config;
  HubFetcher fetcher({}, arguments.log());
  fetch_named(fetcher, config, needed);
  return load_config(file, arguments.overrides());
}

}  // namespace qtrain
