#pragma once
#include <functional>
#include <thread>

#include "core/log.h"
#include "core/os/descriptor.h"

namespace qtrain {

/// From now on, SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless it is ignored, as under nohup) request a stop: the first is
/// remembered, and a later one ends the process immediately with exit code 130. A later SIGHUP does not, and a later
/// SIGTERM or SIGUSR1 only after a second, because shells and `timeout` send them twice. SIGPIPE and SIGXFSZ are
/// ignored, so that a failed write is an error and does not kill the process.
void install_stop_handlers();

/// Whether a stop was requested. Check it between steps, rows and files.
bool stop_requested();

/// Whether Ctrl-C requested the stop: an interactive program then only stops its current answer.
bool interrupted();

/// Throws ErrorKind::stopped if a stop was requested, for work that leaves nothing behind.
void throw_if_stopped();

/// The point of no return of a command, right before its result is put in place: throws ErrorKind::stopped if a stop
/// was requested. A later request is neither answered nor reported by the functions above.
void finish_or_stop();

/// The same for a command that ends differently if a stop was requested: it then returns false.
bool finish_unless_stopped();

/// For work after that point that can be stopped after all: requests are answered again, and one that came too late
/// counts as one that came now.
void reopen_stops();

/// Sets the answer to the first stop request after that point, for work that still takes time to end. The text must
/// have static storage.
void set_late_stop_answer(const char* text);

/// Whether a stop was requested at any time, even after finish_or_stop: for work that could wait forever.
bool signal_came();

/// Sets the message to the user about what a stop leads to from now on, and about Ctrl-C if that is different. The
/// texts must have static storage.
void set_stop_answer(const char* text, const char* on_interrupt = nullptr);

/// Acts as if a signal had come, or had not.
void set_stop_requested(bool asked);

/// Erases a live line and restores the terminal's settings, before the process ends at once. May be called by signal
/// handlers.
void leave_terminal();

/// During the life of this object, a stop ends the process immediately: for work that has nothing to save.
class StopsAtOnce {
 public:
  StopsAtOnce();
  ~StopsAtOnce();
  StopsAtOnce(const StopsAtOnce&) = delete;
  StopsAtOnce& operator=(const StopsAtOnce&) = delete;
};

/// During the life of this object, a stop that ends the process immediately restores the current settings of the
/// terminal on standard input: for a line editor, which turns echo off. There may be only one at a time.
class TerminalSettings {
 public:
  TerminalSettings();
  ~TerminalSettings();
  TerminalSettings(const TerminalSettings&) = delete;
  TerminalSettings& operator=(const TerminalSettings&) = delete;
};

/// A thread that answers the first signal as soon as it comes, whatever the program is busy with.
class StopAnswers {
 public:
  /// `leave` reports the stop and returns the exit code, for StopsAtOnce.
  StopAnswers(Log& log, std::function<int()> leave);
  ~StopAnswers();
  StopAnswers(const StopAnswers&) = delete;
  StopAnswers& operator=(const StopAnswers&) = delete;

 private:
  void answer();

  Log& log_;
  std::function<int()> leave_;
  Descriptor pipe_out_, pipe_in_;
  std::thread thread_;
};

}  // namespace qtrain
