#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "core/log.h"

namespace qtrain {

/// Reads lines that the user types. On a terminal they can be edited, and the arrow keys recall lines of earlier
/// sessions; otherwise lines are read without editing.
class LineEditor {
 public:
  enum class Event : std::uint8_t { line, interrupted, end };
  struct Input {
    Event event;
    std::string text = {};
  };

  /// `history`: file that keeps lines between sessions; empty for none.
  LineEditor(Log& log, std::filesystem::path history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// The next line, without its end.
  Input read();

 private:
  class Terminal;
  std::unique_ptr<Terminal> terminal_;  // null if standard input is not a terminal
  Log& log_;
};

/// Path of a file in the user's state folder ($XDG_STATE_HOME/qtrain, else ~/.local/state/qtrain), which is created.
/// Empty if that fails or neither variable is set.
std::filesystem::path state_file(const std::string& name);

}  // namespace qtrain
