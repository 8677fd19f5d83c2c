#pragma once
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/event_stream.h"
#include "core/os/terminal.h"
#include "core/progress.h"

namespace qtrain {

enum class LogLevel : std::uint8_t { debug, info, warning, error, silent };

/// The form of stdout: lines for people, or one JSON document.
enum class ResultForm : std::uint8_t { lines, document };

/// Everything that the program prints: messages for people on stderr, results on stdout.
class Log {
 public:
  struct Sinks {
    std::FILE* people = stderr;
    std::FILE* result = stdout;
  };
  explicit Log(LogLevel level = LogLevel::info) : Log(level, Sinks{}) {}
  Log(LogLevel level, Sinks sinks);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void set_level(LogLevel level) { level_ = level; }
  LogLevel level() const { return level_; }
  /// False turns off the live line (`disable_tqdm`); permanent lines are still printed.
  void show_progress(bool shown) { progress_shown_ = shown; }
  void set_result_form(ResultForm form) { form_ = form; }
  ResultForm result_form() const { return form_; }

  /// The first thousand warnings, whatever the level.
  std::vector<std::string> warnings();

  template <class... A>
  void debug(fmt::format_string<A...> f, A&&... a) {
    say(LogLevel::debug, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  void info(fmt::format_string<A...> f, A&&... a) {
    say(LogLevel::info, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  void warn(fmt::format_string<A...> f, A&&... a) {
    say(LogLevel::warning, fmt::format(f, std::forward<A>(a)...));
  }
  template <class... A>
  void error(fmt::format_string<A...> f, A&&... a) {
    say(LogLevel::error, fmt::format(f, std::forward<A>(a)...));
  }

  /// Prints each `logged` state and the last one as a permanent line. Below them, a terminal shows every state on a
  /// live line, which is redrawn at most ten times a second.
  void progress(const Progress& p);
  /// Shows a state on the live line only.
  void live(const Progress& p);
  /// Shows several lines in place of the live line. `make` gets the number of columns; lines that exceed the terminal's
  /// height are dropped.
  void live_block(const std::function<std::vector<std::string>(int columns)>& make);
  /// Erases the live line or lines.
  void end_live();
  /// Whether live lines are shown.
  bool shows_live() const { return terminal_.redraws && progress_shown_ && level_ <= LogLevel::info; }

  /// Declares that another process shows a live line on this terminal: it is erased before each message and reappears
  /// with the next output of that process.
  void share_terminal();
  /// Prints a line of another process, without adding a prefix.
  void pass_on(std::string_view line);

  /// From now on, messages and progress also go there as events "message" and "progress", whatever the level, except
  /// debug messages.
  void set_events(std::unique_ptr<EventStream> events) { events_ = std::move(events); }
  /// Writes another event if events are on; `members` as in EventStream.
  void event(std::string_view name, std::string_view members) {
    if (events_) events_->write(name, members);
  }
  bool has_events() const { return events_ != nullptr; }

  /// Writes text to stderr immediately, without adding a line end (for streamed answers of `chat`).
  void stream(std::string_view text);

  /// Writes a line of the command's result to stdout; does nothing if the result is a document. Throws ErrorKind::disk
  /// if stdout cannot be written; then `reader_gone` is true if its reader has closed it (`| head`).
  void result(std::string_view line);
  /// The same without a line end.
  void result_stream(std::string_view text);
  /// Writes the result as one JSON document, at most once; does nothing if the result is lines.
  void document(std::string_view json);
  bool document_given() const { return document_given_; }
  bool reader_gone() const { return reader_gone_; }

 private:
  void say(LogLevel level, std::string_view message);
  int width() const;
  void show(std::string_view text, std::string live);
  void write_result(std::string_view text, std::string_view end);

  std::mutex mutex_;         // guards stderr
  std::mutex result_mutex_;  // separate, because a slow reader of stdout must not delay messages
  LogLevel level_;
  Sinks sinks_;
  Terminal terminal_;
  ResultForm form_ = ResultForm::lines;
  bool progress_shown_ = true, shares_terminal_ = false;
  std::atomic<bool> document_given_ = false, reader_gone_ = false;
  std::vector<std::string> warnings_;
  std::unique_ptr<EventStream> events_;
  std::string live_line_;  // as shown on the terminal, possibly several lines; empty if none is shown
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace qtrain
