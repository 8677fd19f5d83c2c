#include <fmt/format.h>

#include <algorithm>

#include "train/cli/arguments.h"
#include "train/config/keys.h"
#include "train/version.h"

namespace qtrain {
namespace {

std::string flag_usage(const Flag& f) {
  return f.kind == FlagKind::present ? fmt::format("--{}", f.name) : fmt::format("--{} {}", f.name, f.value);
}

}  // namespace

std::string general_help() {
  std::string out = fmt::format(
      "qtrain {}: train and run language models on this machine\n\nusage: qtrain CONFIG.json [key=value ...]\n"
      "       qtrain COMMAND [options]\n\ncommands:\n",
      kVersion);
  for (const Command& c : commands()) out += fmt::format("  {:<11} {}\n", c.name, c.summary);
  out +=
      "\nqtrain COMMAND --help tells about each; --version prints the version.\n"
      "exit codes: 0 done, 1 internal error, 2 usage or config, 3 bad data or model files, 4 does not fit in memory,\n"
      "5 non-finite loss, 6 disk or write error, 7 a rank was lost, 75 stopped by a signal with a checkpoint, 130 "
      "second "
      "interrupt";
  return out;
}

std::string command_help(const Command& c) {
  std::string out = fmt::format("{}\n\nusage: qtrain {}{}{} [options]\n\noptions:\n", c.summary, c.name,
                                c.operands.empty() ? "" : " ", c.operands);
  std::size_t width = 0;
  for (const Flag& f : c.flags) width = std::max(width, flag_usage(f).size());
  for (const Flag& f : c.flags) out += fmt::format("  {:<{}}  {}\n", flag_usage(f), width, f.doc);
  if (c.overrides)
    out += "\nkey=value overrides any config key, with dots for nesting; `qtrain config` lists the keys.\n";
  out.pop_back();
  return out;
}

}  // namespace qtrain
