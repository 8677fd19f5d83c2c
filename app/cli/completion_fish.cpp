#include <fmt/format.h>

#include <algorithm>

#include "app/cli/command_table.h"
#include "app/cli/completion.h"

namespace qtrain {
namespace {

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "'";
}

// How a value is completed: -x offers only the given words, -r also files.
std::string fish_value(const Hint& hint) {
  switch (hint.kind) {
    case Hint::Kind::words: return " -x -a " + fish_quoted(hint.words);
    case Hint::Kind::folders: return " -x -a '(__fish_complete_directories)'";
    case Hint::Kind::words_and_folders: return fmt::format(" -x -a '{} (__fish_complete_directories)'", hint.words);
    case Hint::Kind::files: return " -r -F";
    case Hint::Kind::nothing: break;
  }
  return " -x";
}

std::string fish_command(const Command& c) {
  std::string lines =
      fmt::format("complete -c qtrain -n __fish_use_subcommand -f -a {} -d {}\n", c.name, fish_quoted(c.summary));
  const std::string here = fmt::format("complete -c qtrain -n '__qtrain_is {}'", c.name);
  for (const Flag& f : c.flags)
    lines += fmt::format("{} -l {}{} -d {}\n", here, f.name, f.kind == FlagKind::present ? "" : fish_value(hint_of(f)),
                         fish_quoted(f.doc));
  const Hint operand = hint_of_operands(c);
  if (c.overrides)
    lines += here + " -a '(__qtrain_keys)'\n";
  else if (operand.kind == Hint::Kind::words || operand.kind == Hint::Kind::folders)
    lines += here + fish_value(operand) + "\n";
  return lines;
}

std::string fish_values() {
  std::string lines;
  for (const KeyHint& k : key_hints()) {
    std::string words = k.hint.words;
    if (k.hint.kind == Hint::Kind::words)
      lines += fmt::format("    case '{}=*'\n      printf '{}=%s\\n' {}\n", k.key, k.key, words);
    else if (k.hint.kind != Hint::Kind::nothing)
      lines += fmt::format(
          "    case '{0}=*'\n      printf '{0}=%s\\n' (__fish_complete_path (string replace '{0}=' '' "
          "-- $current))\n",
          k.key);
  }
  return lines;
}

constexpr std::string_view kFishScript = R"script(# fish completion of qtrain: qtrain completion fish | source
function __qtrain_is
  set -l words (commandline -opc)
  test (count $words) -gt 1; or return 1
  test "$words[2]" = "$argv[1]"; and return 0
  test "$argv[1]" = train; and string match -qr '\.({ends})$' -- $words[2]
end
function __qtrain_keys
  string match -qr '\.({ends})$' -- (commandline -opc); or return
  set -l current (commandline -ct)
  switch $current
{values}    case '*'
      printf '%s\n' {keys}
  end
end
)script";

}  // namespace

std::string fish_completion() {
  std::string script = fmt::format(kFishScript, fmt::arg("ends", kConfigEnds), fmt::arg("values", fish_values()),
                                   fmt::arg("keys", key_assignments()));
  for (const Command& c : commands()) script += fish_command(c);
  return script;
}

}  // namespace qtrain
