#include "app/init/questions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "config/fields.h"
#include "config/keys.h"
#include "core/os/terminal.h"
#include "core/utf8.h"

namespace qtrain::init {
namespace {

[[noreturn]] void leave() {
  fail(ErrorKind::stopped, {.cause = "stopped: nothing was written"});
}

/// The text without spaces around it.
std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

/// A path as a shell would give it: "~/model" is in the home folder.
std::string path_of(const std::string& word) {
  const char* home = std::getenv("HOME");
  return home && (word == "~" || word.starts_with("~/")) ? home + word.substr(1) : word;
}

/// Why a choice cannot have this value; "" if it can.
std::string objection(const Choice& choice, const Json& value) {
  Config scratch;
  const auto [error, remedy] = assign_field(scratch, choice.key, value);
  if (!error.empty()) return fmt::format("{} {}{}", choice.key, error, remedy.empty() ? "" : "; " + remedy);
  return choice.objection ? choice.objection(value) : "";
}

}  // namespace

bool can_ask() {
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
}

std::string line_of(const Choice& choice) {
  const std::string value = show(choice.key, choice.value);
  return fmt::format("{}: {}{}", choice.key, value, choice.reason.empty() ? "" : " (" + one_line(choice.reason) + ")");
}

void Questions::say(const std::string& text) {
  for (std::size_t begin = 0, end = 0; end != text.npos; begin = end + 1) {
    end = text.find('\n', begin);
    for (const std::string& part :
         wrapped(printable(text.substr(begin, end == text.npos ? end : end - begin)), terminal_width(STDERR_FILENO)))
      log_.stream(part + "\n");
  }
}

std::string Questions::line() {
  const LineEditor::Input input = editor_.read();
  if (input.event != LineEditor::Event::line) leave();
  return trimmed(input.text);
}

Json Questions::confirm(const Choice& choice) {
  say(line_of(choice));
  while (choice.asked) {
    say("Enter keeps it; or type another value");
    const std::string word = line();
    if (word.empty()) return choice.value;
    Json value = value_of_word(word);
    if (const std::string why = objection(choice, value); !why.empty()) {
      say(why);
      continue;
    }
    answers_.emplace_back(choice.key, word);
    return value;
  }
  return choice.value;
}

std::string Questions::ask(const std::string& what) {
  say(what);
  while (true) {
    const std::string word = line();
    if (!word.empty()) return path_of(word);
  }
}

}  // namespace qtrain::init
