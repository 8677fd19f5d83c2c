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

/// Everything the program says: messages for people on stderr, results on stdout. Nothing else prints.
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
  /// False turns the live line off (`disable_tqdm`); lines that stay still come.
  void show_progress(bool shown) { progress_shown_ = shown; }
  void set_result_form(ResultForm form) { form_ = form; }
  ResultForm result_form() const { return form_; }

  /// The first thousand warnings, whatever the level shows.
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

  /// Each `logged` state and the last one become a line that stays; below them a terminal shows every state on one line
  /// that is drawn again, at most ten times a second.
  void progress(const Progress& p);
  /// Shows a state on the live line only.
  void live(const Progress& p);
  /// Several lines in the place of that line, made for so many columns; what the terminal is too low for is left out.
  void live_block(const std::function<std::vector<std::string>(int columns)>& make);
  /// Takes them away.
  void end_live();
  /// Whether there is one.
  bool shows_live() const { return terminal_.redraws && progress_shown_ && level_ <= LogLevel::info; }

  /// Another process shows a live line on this terminal: it is taken away before whatever is said, and comes again when
  /// that process says something.
  void share_terminal();
  /// A line that another process has said, as it is.
  void pass_on(std::string_view line);

  /// Everything that is said from now on goes there too, as events "message" and "progress" whatever the level.
  void set_events(std::unique_ptr<EventStream> events) { events_ = std::move(events); }
  /// Another event, if they are written; `members` as in EventStream.
  void event(std::string_view name, std::string_view members) {
    if (events_) events_->write(name, members);
  }
  bool has_events() const { return events_ != nullptr; }

  /// Text for people on stderr as it is, at once, without a line end (streamed answers of `chat`).
  void stream(std::string_view text);

  /// A line of the command's result on stdout; nothing where the result is one document. Throws ErrorKind::disk when
  /// stdout cannot be written; `reader_gone` tells that nobody reads it any more (`| head`).
  void result(std::string_view line);
  /// The same without a line end, flushed.
  void result_stream(std::string_view text);
  /// The result as one JSON document, given at most once; nothing where the result is lines.
  void document(std::string_view json);
  bool document_given() const { return document_given_; }
  bool reader_gone() const { return reader_gone_; }

 private:
  void say(LogLevel level, std::string_view message);
  int width() const;
  void show(std::string_view text, std::string live);
  void write_result(std::string_view text, std::string_view end);

  std::mutex mutex_;         // of what people see
  std::mutex result_mutex_;  // apart: a reader of stdout that waits must not keep messages back
  LogLevel level_;
  Sinks sinks_;
  Terminal terminal_;
  ResultForm form_ = ResultForm::lines;
  bool progress_shown_ = true, shares_terminal_ = false;
  std::atomic<bool> document_given_ = false, reader_gone_ = false;
  std::vector<std::string> warnings_;
  std::unique_ptr<EventStream> events_;
  std::string live_line_;  // as it stands on the terminal, or several lines; empty: there is none
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace qtrain
