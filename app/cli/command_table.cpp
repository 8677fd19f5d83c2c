#include "app/cli/command_table.h"

#include <algorithm>
#include <array>

#include "app/cli/command_rows.h"

namespace qtrain {
namespace {

bool has_flag(const Command& c, std::string_view name) {
  return std::any_of(c.flags.begin(), c.flags.end(), [&](const Flag& f) { return f.name == name; });
}

/// Whether a flag that all commands accept has an effect in this one.
bool has_effect(const Flag& f, const Command& c) {
  constexpr std::array<std::string_view, 3> kComputing{"generate", "chat", "serve"},
      kConverting{"merge", "quantize", "export"};
  const auto is_of = [&](const auto& names) { return std::find(names.begin(), names.end(), c.name) != names.end(); };
  using namespace command_rows;
  if (f.name == kDevice.name) return c.overrides || is_of(kComputing);
  if (f.name == kThreads.name) return c.overrides || is_of(kComputing) || is_of(kConverting);
  return f.name != kQuiet.name || c.has_result;
}

/// All commands, with the common flags added.
std::vector<Command> make_commands() {
  using namespace command_rows;
  std::vector<Command> all = training_commands();
  for (Command& c : model_commands()) all.push_back(std::move(c));
  for (Command& c : all)
    for (const Flag& f : {kThreads, kDevice, kJson, kQuiet, kHelp})
      if (!has_flag(c, f.name) && (c.has_result || f.name != kJson.name))
        (has_effect(f, c) ? c.flags : c.idle_flags).push_back(f);
  return all;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = make_commands();
  return table;
}

const Command* find_command(std::string_view name) {
  const auto& table = commands();
  const auto at = std::find_if(table.begin(), table.end(), [&](const Command& c) { return c.name == name; });
  return at == table.end() ? nullptr : &*at;
}

}  // namespace qtrain
