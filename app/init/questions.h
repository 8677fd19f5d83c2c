#pragma once
#include <string>

#include "app/cli/line_editor.h"
#include "app/init/choices.h"
#include "core/log.h"

namespace qtrain::init {

/// Shows choices on a terminal and lets the user change them.
class Questions {
 public:
  explicit Questions(Log& log) : log_(log), editor_(log, {}) {}

  /// Shows a choice, and asks for one that the user may change: Enter keeps it. Asks again for a value that the key
  /// cannot have. Throws ErrorKind::stopped if the user leaves.
  Json confirm(const Choice& choice);
  /// A text for which there is no proposal.
  std::string ask(const std::string& what);
  /// What the user typed in place of choices.
  const Overrides& answers() const { return answers_; }

 private:
  std::string line();
  void say(const std::string& text);

  Log& log_;
  LineEditor editor_;
  Overrides answers_;
};

/// Whether questions can be asked: standard input and error are a terminal.
bool can_ask();

/// "key: value: reason" on one line.
std::string line_of(const Choice& choice);

}  // namespace qtrain::init
