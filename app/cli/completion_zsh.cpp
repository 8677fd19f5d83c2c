#include <fmt/format.h>

#include "app/cli/command_table.h"
#include "app/cli/completion.h"

namespace qtrain {
namespace {

std::string zsh_quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':')
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

// The action that zsh's _arguments runs to complete a value.
std::string zsh_action(const Hint& hint) {
  switch (hint.kind) {
    case Hint::Kind::words: return "(" + hint.words + ")";
    case Hint::Kind::folders: return "_files -/";
    case Hint::Kind::words_and_folders: return fmt::format("{{compadd {}; _files -/}}", hint.words);
    case Hint::Kind::files: return "_files";
    case Hint::Kind::nothing: break;
  }
  return " ";
}

std::string zsh_flags(const Command& c) {
  std::string cases = fmt::format("    {}) _arguments", c.name);
  for (const Flag& f : c.flags)
    cases += fmt::format(
        " \\\n      '{}--{}[{}]{}'", f.kind == FlagKind::repeated ? "*" : "", f.name, zsh_quoted(f.doc),
        f.kind == FlagKind::present ? "" : fmt::format(":{}:{}", zsh_quoted(f.value), zsh_action(hint_of(f))));
  // An operand that could be anything gets no entry: one would keep flags from being completed.
  const std::string operand = c.overrides ? "_qtrain_config" : zsh_action(hint_of_operands(c));
  return cases + (operand == " " ? " ;;\n" : fmt::format(" \\\n      '*:operand:{}' ;;\n", operand));
}

std::string zsh_values() {
  std::string cases;
  for (const KeyHint& k : key_hints()) {
    const std::string action = k.hint.kind == Hint::Kind::words ? "compadd " + k.hint.words : zsh_action(k.hint);
    if (k.hint.kind != Hint::Kind::nothing) cases += fmt::format("      {}) {} ;;\n", k.key, action);
  }
  return cases;
}

constexpr std::string_view kZshScript = R"script(#compdef qtrain
# zsh completion of qtrain: source <(qtrain completion zsh), or a file _qtrain in $fpath
_qtrain_config() {{
  if (( ! ${{words[(I)*.({ends})]}} )); then
    _files -g '*.({ends})'
  elif compset -P '*='; then
    case "${{IPREFIX%=}}" in
{values}    esac
  else
    compadd -S '' -- {keys}
  fi
}}
_qtrain() {{
  local -a names
  names=(
{names}  )
  if (( CURRENT == 2 )); then
    _describe command names
    _files -g '*.({ends})'
    return
  fi
  local name="$words[2]"
  [[ "$name" == *.({ends}) ]] && name=train
  if [[ "$name" == "$words[2]" ]]; then
    shift words
    (( CURRENT-- ))
  fi
  case "$name" in
{cases}  esac
}}
if [[ "$funcstack[1]" == _qtrain ]]; then
  _qtrain "$@"
else
  compdef _qtrain qtrain
fi
)script";

}  // namespace

std::string zsh_completion() {
  std::string names, cases;
  for (const Command& c : commands()) {
    names += fmt::format("    '{}:{}'\n", c.name, zsh_quoted(c.summary));
    cases += zsh_flags(c);
  }
  return fmt::format(kZshScript, fmt::arg("ends", kConfigEnds), fmt::arg("values", zsh_values()),
                     fmt::arg("keys", key_assignments()), fmt::arg("names", names), fmt::arg("cases", cases));
}

}  // namespace qtrain
