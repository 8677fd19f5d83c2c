#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "core/log.h"

namespace qtrain {

/// Lines that a user types. On a terminal they can be edited, and those of earlier sessions come back with the arrow
/// keys; elsewhere lines are read as they are.
class LineEditor {
 public:
  enum class Event : std::uint8_t { line, interrupted, end };
  struct Input {
    Event event;
    std::string text = {};
  };

  /// `history`: where lines are kept between sessions; empty for nowhere.
  LineEditor(Log& log, std::filesystem::path history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// The next line, without its end.
  Input read();

 private:
  class Terminal;
  std::unique_ptr<Terminal> terminal_;  // none where standard input is none
  Log& log_;
};

/// A file of the user's state folder ($XDG_STATE_HOME/qtrain, else ~/.local/state/qtrain), which is made; empty where
/// there is no such folder.
std::filesystem::path state_file(const std::string& name);

}  // namespace qtrain
