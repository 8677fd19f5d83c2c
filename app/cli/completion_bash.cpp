#include <fmt/format.h>

#include <map>

#include "app/cli/command_table.h"
#include "app/cli/completion.h"

namespace qtrain {
namespace {

// The hint as the script's functions print it.
std::string bash_hint(const Hint& hint) {
  if (hint.kind == Hint::Kind::folders) return "@folders";
  if (hint.kind == Hint::Kind::files) return "@files";
  if (hint.kind == Hint::Kind::words_and_folders) return "@folders " + hint.words;
  if (hint.kind == Hint::Kind::nothing) return "@nothing";
  return hint.words;
}

// One line "    a|b) echo words ;;" per hint, with the patterns that share it.
std::string bash_cases(const std::vector<std::pair<std::string, Hint>>& hints) {
  std::map<std::string, std::string> patterns;
  for (const auto& [pattern, hint] : hints) {
    std::string& all = patterns[bash_hint(hint)];
    all += (all.empty() ? "" : "|") + pattern;
  }
  std::string cases;
  for (const auto& [hint, all] : patterns) cases += fmt::format("    {}) echo \"{}\" ;;\n", all, hint);
  return cases;
}

std::string flag_cases() {
  std::string cases;
  for (const Command& c : commands()) cases += fmt::format("    {}) echo \"{}\" ;;\n", c.name, flag_words(c));
  return cases;
}

std::string value_cases() {
  std::vector<std::pair<std::string, Hint>> hints;
  for (const Command& c : commands())
    for (const Flag& f : c.flags)
      if (f.kind != FlagKind::present) hints.emplace_back(fmt::format("{}:--{}", c.name, f.name), hint_of(f));
  for (const KeyHint& k : key_hints())
    if (k.hint.kind != Hint::Kind::nothing) hints.emplace_back(fmt::format("*:{}", k.key), k.hint);
  return bash_cases(hints);
}

std::string operand_cases() {
  std::vector<std::pair<std::string, Hint>> hints;
  for (const Command& c : commands())
    if (const Hint hint = hint_of_operands(c); hint.kind != Hint::Kind::nothing)
      hints.emplace_back(std::string(c.name), hint);
  return bash_cases(hints);
}

std::string names_with_overrides() {
  std::string names;
  for (const Command& c : commands())
    if (c.overrides) names += (names.empty() ? "" : "|") + std::string(c.name);
  return names;
}

// Doubled braces are literal braces of the script.
constexpr std::string_view kBashScript = R"script(# bash completion of qtrain: source <(qtrain completion bash)
_qtrain_flags() {{
  case "$1" in
{flags}  esac
}}
_qtrain_value() {{
  case "$1" in
{values}  esac
}}
_qtrain_operand() {{
  case "$1" in
{operands}  esac
}}
_qtrain_offer() {{
  case "$1" in
    @nothing) ;;
    @folders*)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -W "${{1#@folders}}" -- "$2"; compgen -d -- "$2") ;;
    @files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2") ;;
  esac
}}
_qtrain() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" key="" config="" word
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -W "{names} --help --version" -- "$current"; compgen -d -- "$current"
      compgen -f -- "$current" | grep -E '\.({ends})$')
    return
  fi
  [[ "$command" =~ \.({ends})$ ]] && command=train
  if [ "$current" = "=" ]; then
    key="${{COMP_WORDS[COMP_CWORD-1]}}" current=""
  elif [ "${{COMP_WORDS[COMP_CWORD-1]}}" = "=" ]; then
    key="${{COMP_WORDS[COMP_CWORD-2]}}"
  elif [[ "${{COMP_WORDS[COMP_CWORD-1]}}" == --* ]]; then
    key="${{COMP_WORDS[COMP_CWORD-1]}}"
  fi
  if [ -n "$key" ]; then
    word="$(_qtrain_value "$command:$key")"
    if [ -n "$word" ] || [ "${{key#--}}" = "$key" ]; then
      _qtrain_offer "$word" "$current"
      return
    fi
  fi
  if [[ "$current" == -* ]]; then
    _qtrain_offer "$(_qtrain_flags "$command")" "$current"
    return
  fi
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ "$word" =~ \.({ends})$ ]] && config=1
  done
  case "$command" in
    {overrides})
      if [ -n "$config" ]; then
        compopt -o nospace 2>/dev/null
        _qtrain_offer "{keys}" "$current"
        return
      fi ;;
  esac
  _qtrain_offer "$(_qtrain_operand "$command")" "$current"
}}
complete -F _qtrain qtrain
)script";

}  // namespace

std::string bash_completion() {
  return fmt::format(kBashScript, fmt::arg("flags", flag_cases()), fmt::arg("values", value_cases()),
                     fmt::arg("operands", operand_cases()), fmt::arg("names", command_words()),
                     fmt::arg("ends", kConfigEnds), fmt::arg("overrides", names_with_overrides()),
                     fmt::arg("keys", key_assignments()));
}

}  // namespace qtrain
