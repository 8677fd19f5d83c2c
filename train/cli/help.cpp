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

std::string joined_names() {
  std::string names;
  for (const Command& c : commands()) names += (names.empty() ? "" : " ") + std::string(c.name);
  return names;
}

std::string flag_words(const Command& c) {
  std::string words;
  for (const Flag& f : c.flags) words += fmt::format("{}--{}", words.empty() ? "" : " ", f.name);
  return words;
}

std::string bash_script() {
  std::string cases;
  for (const Command& c : commands()) cases += fmt::format("    {}) words=\"{}\" ;;\n", c.name, flag_words(c));
  return fmt::format(R"(_qtrain() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current") $(compgen -f -X '!*.json' -- "$current") $(compgen -f -X '!*.y*ml' -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{}  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
    *) COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
}}
complete -o filenames -F _qtrain qtrain
)",
                     joined_names(), cases);
}

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

std::string zsh_script() {
  std::string names, cases;
  for (const Command& c : commands()) {
    names += fmt::format("    '{}:{}'\n", c.name, zsh_quoted(c.summary));
    cases += fmt::format("    {}) _arguments", c.name);
    for (const Flag& f : c.flags)
      cases += fmt::format(" \\\n      '--{}[{}]{}'", f.name, zsh_quoted(f.doc),
                           f.kind == FlagKind::present ? "" : fmt::format(":{}:_files", zsh_quoted(f.value)));
    cases += " \\\n      '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef qtrain
_qtrain() {{
  local -a names
  names=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command names
    _files -g '*.(json|yaml|yml)'
    return
  fi
  local name="$words[2]"
  shift words
  (( CURRENT-- ))
  case "$name" in
{}  esac
}}
compdef _qtrain qtrain
)",
                     names, cases);
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

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  fail(ErrorKind::usage,
       {.cause = fmt::format("no completion for \"{}\"", shell), .place = {}, .remedy = "bash or zsh"});
}

}  // namespace qtrain
