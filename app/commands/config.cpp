#include <fmt/format.h>

#include "app/commands/commands.h"
#include "config/config.h"
#include "config/keys.h"
#include "config/reference.h"
#include "config/remarks.h"
#include "train/setup/compute.h"

namespace qtrain {
namespace {

std::string table_of(const Json& resolved) {
  std::string table = fmt::format("dialect: {}\n", resolved.at("dialect").get<std::string>());
  for (const auto& [key, entry] : resolved.at("values").items())
    table +=
        fmt::format("{:<32} {:<28} {}\n", key, dump_json(entry.at("value")), entry.at("origin").get<std::string>());
  if (!resolved.at("ignored").empty()) table += "without effect:\n";
  for (const auto& [key, entry] : resolved.at("ignored").items())
    table += fmt::format("{:<32} {:<28} {}: {}\n", key, show(entry.at("value")), entry.at("origin").get<std::string>(),
                         entry.at("reason").get<std::string>());
  return table;
}

}  // namespace

/// `qtrain config`: the reference page, or a config with the origin of each value.
int run_config(const Arguments& arguments) {
  if (arguments.operands().empty()) {
    arguments.give({.text = config_reference(), .json = config_keys_json()});
    return 0;
  }
  ResolvedConfig config = load_config(arguments.operand(0), arguments.overrides());
  remark_on_device(config);
  tell_remarks(config, arguments.log());
  const Json resolved = resolved_json(config);
  arguments.give({.text = table_of(resolved), .json = resolved});
  return 0;
}

}  // namespace qtrain
