#include "app/cli/hub_arguments.h"

#include <fmt/format.h>

#include "config/hub_names.h"
#include "hub/cache.h"
#include "hub/environment.h"

namespace qtrain {
namespace {

/// A value that may name a model: "OWNER/NAME", for `serve` also "LABEL=OWNER/NAME".
struct NamedValue {
  std::string label;  ///< with its "="
  std::string text;
};

NamedValue split_label(const Flag& flag, const std::string& value) {
  const std::size_t equals = value.find('=');
  if (!flag.value.starts_with("[NAME=]") || equals == value.npos) return {.label = "", .text = value};
  return {.label = value.substr(0, equals + 1), .text = value.substr(equals + 1)};
}

/// The path of what a text names; none if it is a path, or a name without an owner that is not in the cache.
std::optional<std::string> placed(const std::string& key, const std::string& text, const std::string& revision) {
  auto name = hub_name_unless_path(RepoKind::model, text);
  if (!name) return {};
  if (!revision.empty() && name->revision == HubName{}.revision) name->revision = revision;
  if (!is_revision(name->revision))
    fail(ErrorKind::usage, {.cause = fmt::format("--revision {} is no branch, tag or commit", name->revision)});
  NamedOnHub named{.key = key, .name = *name};
  named.place = HubCache(hub_environment().cache).find(*name);
  if (named.place) return named.place->path.string();
  if (name->has_owner()) fail(ErrorKind::input, not_found(named));
  return {};
}

}  // namespace

void place_names(Arguments& arguments) {
  const Command& command = arguments.command();
  for (const Flag& flag : command.flags) {
    if (flag.files == ModelFiles::none) continue;
    const std::vector<std::string> values = arguments.all(flag.name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto [label, text] = split_label(flag, values[i]);
      const std::string revision = flag.name == "model" ? arguments.text("revision").value_or("") : "";
      const auto path = placed(fmt::format("--{}", flag.name), text, revision);
      if (!path) continue;
      if (label.empty() && flag.value.starts_with("[NAME=]")) label = text.substr(text.rfind('/') + 1) + "=";
      arguments.replace(flag.name, i, label + *path);
    }
  }
  if (command.files == ModelFiles::none || arguments.operands().empty()) return;
  if (const auto path = placed("the operand", arguments.operand(0), "")) arguments.replace_operand(0, *path);
}

ResolvedConfig load_run_config(const Arguments& arguments, const std::filesystem::path& file) {
  ResolvedConfig config = load_config(file, arguments.overrides());
  require_found(config);
  return config;
}

}  // namespace qtrain
