#include <fmt/format.h>

#include "train/cli/arguments.h"
#include "train/config/config.h"

namespace qtrain {
namespace {

std::string table_of(const Json& resolved) {
  std::string table = fmt::format("dialect: {}\n", resolved.at("dialect").get<std::string>());
  for (const auto& [key, entry] : resolved.at("values").items())
    table +=
        fmt::format("{:<32} {:<28} {}\n", key, dump_json(entry.at("value")), entry.at("origin").get<std::string>());
  if (!resolved.at("inert").empty()) table += "without effect:\n";
  for (const auto& [key, entry] : resolved.at("inert").items())
    table += fmt::format("{:<32} {:<28} {}: {}\n", key, dump_json(entry.at("value")),
                         entry.at("origin").get<std::string>(), entry.at("reason").get<std::string>());
  return table;
}

}  // namespace

/// `qtrain config`: the reference page, or a config with the origin of each value.
int run_config(const Arguments& arguments) {
  if (arguments.operands().empty()) {
    arguments.give({.text = config_reference(), .json = config_keys_json()});
    return 0;
  }
  const ResolvedConfig config = load_config(arguments.operand(0), arguments.overrides());
  for (const std::string& note : config.notes) arguments.log().info("{}", note);
  const Json resolved = resolved_json(config);
  arguments.give({.text = table_of(resolved), .json = resolved});
  return 0;
}

}  // namespace qtrain
