#include <fmt/format.h>

#include "train/cli/arguments.h"
#include "train/config/config.h"

namespace qtrain {
namespace {

void print_table(const ResolvedConfig& config, Log& log) {
  const Json json = resolved_json(config);
  log.result(fmt::format("dialect: {}", config.dialect));
  for (const auto& [key, entry] : json.at("values").items())
    log.result(
        fmt::format("{:<32} {:<28} {}", key, dump_json(entry.at("value")), entry.at("origin").get<std::string>()));
}

}  // namespace

/// `qtrain config`: the reference page, or a config with the origin of each value.
int run_config(const Arguments& arguments) {
  Log& log = arguments.log();
  if (arguments.operands().empty()) {
    log.result_stream(config_reference());
    return 0;
  }
  const ResolvedConfig config = load_config(arguments.operand(0), arguments.overrides());
  for (const std::string& note : config.notes) log.info("{}", note);
  if (arguments.json())
    log.result(dump_json(resolved_json(config), 2));
  else
    print_table(config, log);
  return 0;
}

}  // namespace qtrain
