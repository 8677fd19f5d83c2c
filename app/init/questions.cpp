#include "app/init/questions.h"

#include <fmt/format.h>
#include <unistd.h>

#include "config/fields.h"
#include "config/keys.h"
#include "core/os/terminal.h"
#include "core/utf8.h"

namespace qtrain::init {
namespace {

[[noreturn]] void leave() {
  fail(ErrorKind::stopped, {.cause = "stopped: nothing was written"});
}

bool is_blank_line(const std::string& text) {
  return text.find_first_not_of(" \t") == text.npos;
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
  for (const std::string& part : wrapped(printable(text), terminal_width(STDERR_FILENO))) log_.stream(part + "\n");
}

std::string Questions::line() {
  const LineEditor::Input input = editor_.read();
  if (input.event != LineEditor::Event::line) leave();
  return input.text;
}

Json Questions::confirm(const Choice& choice) {
  say(line_of(choice));
  while (choice.asked) {
    say("Enter keeps it; or type another value");
    const std::string word = line();
    if (is_blank_line(word)) return choice.value;
    Json value = value_of_word(word);
    Config scratch;
    const auto [error, remedy] = assign_field(scratch, choice.key, value);
    if (error.empty()) return value;
    say(fmt::format("{} {}{}", choice.key, error, remedy.empty() ? "" : "; " + remedy));
  }
  return choice.value;
}

std::string Questions::ask(const std::string& what) {
  say(what);
  while (true) {
    const std::string word = line();
    if (!is_blank_line(word)) return word;
  }
}

}  // namespace qtrain::init
