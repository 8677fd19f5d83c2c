#include "app/cli/completion.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/cli/command_table.h"
#include "config/fields.h"
#include "config/keys.h"

namespace qtrain {
namespace {

/// Completion of keys whose values are paths, by the ending of the key's name.
struct KeyKind {
  std::string_view end;
  Hint::Kind kind;
};
constexpr KeyKind kKeyKinds[] = {{"_name_or_path", Hint::Kind::folders}, {"_dir", Hint::Kind::folders},
                                 {"dataset_name", Hint::Kind::files},    {"chat_template_path", Hint::Kind::files},
                                 {"deepspeed", Hint::Kind::files},       {"accelerate_config", Hint::Kind::files}};

std::string spaced(std::string_view alternatives) {
  std::string words(alternatives);
  std::replace(words.begin(), words.end(), '|', ' ');
  return words;
}

void add_word(std::string& words, std::string_view word) {
  words += fmt::format("{}{}", words.empty() ? "" : " ", word);
}

}  // namespace

Hint hint_of(const Flag& flag) {
  if (flag.kind == FlagKind::choice) return {Hint::Kind::words, spaced(flag.value)};
  if (flag.value.ends_with("|DIR"))
    return {Hint::Kind::words_and_folders, spaced(flag.value.substr(0, flag.value.rfind('|')))};
  if (flag.value == "DIR") return {Hint::Kind::folders};
  if (flag.value.starts_with("FILE")) return {Hint::Kind::files};
  return {};
}

Hint hint_of_operands(const Command& command) {
  const std::string_view first = command.operands.substr(0, command.operands.find(' '));
  if (first == "DIR") return {Hint::Kind::folders};
  if (!first.empty() &&
      std::all_of(first.begin(), first.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '|'; }))
    return {Hint::Kind::words, spaced(first)};
  return command.max_operands > 0 ? Hint{Hint::Kind::files} : Hint{};
}

std::vector<KeyHint> key_hints() {
  std::vector<KeyHint> hints;
  for (const Field& field : fields()) {
    Hint hint;
    for (const KeyKind& kind : kKeyKinds)
      if (field.name.ends_with(kind.end)) hint.kind = kind.kind;
    const auto words = field.is_switch ? std::vector<std::string>{"true", "false"} : field.words;
    if (!words.empty()) hint.kind = Hint::Kind::words;
    for (const std::string_view word : words) add_word(hint.words, word);
    hints.push_back({field.name, std::move(hint)});
  }
  return hints;
}

std::string command_words() {
  std::string words;
  for (const Command& c : commands()) add_word(words, c.name);
  return words;
}

std::string flag_words(const Command& command) {
  std::string words;
  for (const Flag& f : command.flags) add_word(words, fmt::format("--{}", f.name));
  return words;
}

std::string key_assignments() {
  std::string words;
  for (const std::string_view key : field_names()) add_word(words, fmt::format("{}=", key));
  return words;
}

std::string completion_script(std::string_view shell) {
  if (shell == "bash") return bash_completion();
  if (shell == "zsh") return zsh_completion();
  if (shell == "fish") return fish_completion();
  fail(ErrorKind::usage,
       {.cause = fmt::format("no completion for \"{}\"", shell), .place = {}, .remedy = "use bash, zsh or fish"});
}

}  // namespace qtrain
