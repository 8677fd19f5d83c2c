#pragma once
#include <histedit.h>

#include <filesystem>
#include <string_view>

namespace qtrain {

/// A file with the lines that a user entered, in libedit's format. It is created for its user only. A file that
/// libedit has not written, a device, and a FIFO are left alone; then no lines are saved. A history that cannot be
/// written is only read.
class LineHistory {
 public:
  /// `file` may be empty. A file of more than twice as many lines as `longest` is shortened to the last ones.
  LineHistory(std::filesystem::path file, std::size_t longest);

  /// Adds the lines of the file to those of the editor.
  void load(History* lines) const;
  /// Appends a line, so that sessions that run at the same time keep each other's lines.
  void remember(std::string_view line) const;

 private:
  std::filesystem::path file_;
};

}  // namespace qtrain
