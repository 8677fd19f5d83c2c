#include "app/cli/help.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/cli/command_table.h"
#include "app/cli/exit_codes.h"
#include "config/keys.h"
#include "core/version.h"

namespace qtrain {
namespace {

std::string flag_usage(const Flag& f) {
  return f.kind == FlagKind::present ? fmt::format("--{}", f.name) : fmt::format("--{} {}", f.name, f.value);
}

constexpr std::size_t kHelpWidth = 79;

}  // namespace

std::string in_columns(const std::string& label, std::string_view text, std::size_t column) {
  std::string out, line = label;
  const auto break_line = [&] {
    out += line + "\n";
    line.clear();
  };
  if (column > 0 && label.size() >= column) break_line();
  line.resize(column, ' ');
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (line.size() > column && line.size() + 1 + word.size() > kHelpWidth) {
      break_line();
      line.resize(column, ' ');
    }
    if (line.size() > column) line += ' ';
    line += word;
  }
  break_line();
  return out;
}

std::string general_help() {
  std::string out = fmt::format(
      "qtrain {}: train and run language models on this machine\n\nusage: qtrain CONFIG.json [key=value ...]\n"
      "       qtrain COMMAND [options]\n\ncommands:\n",
      kVersion);
  std::size_t width = 0;
  for (const Command& c : commands()) width = std::max(width, c.name.size());
  for (const Command& c : commands()) out += in_columns(fmt::format("  {}", c.name), c.summary, width + 4);
  out += "\n`qtrain COMMAND --help` describes a command; `--version` prints the version.\n";
  std::string codes;
  for (const ExitCode& e : kExitCodes) codes += fmt::format("{}{} {}", codes.empty() ? "" : ", ", e.code, e.meaning);
  out += in_columns("exit codes:", codes, 0);
  out.pop_back();
  return out;
}

std::string command_help(const Command& c) {
  constexpr std::size_t kWidestUsage = 24;
  std::string out = in_columns("", c.summary, 0);
  const std::string usage = fmt::format("usage: qtrain {}", c.name);
  out += "\n" +
         in_columns(usage, fmt::format("{}{}[options]", c.operands, c.operands.empty() ? "" : " "), usage.size() + 1);
  out += "\noptions:\n";
  std::size_t width = 0;
  for (const Flag& f : c.flags) width = std::max(width, std::min(flag_usage(f).size(), kWidestUsage));
  for (const Flag& f : c.flags) out += in_columns(fmt::format("  {}", flag_usage(f)), f.doc, width + 4);
  if (c.overrides)
    out +=
        "\n" +
        in_columns("", "key=value overrides any config key, with dots for nesting; `qtrain config` lists the keys.", 0);
  out.pop_back();
  return out;
}

}  // namespace qtrain
