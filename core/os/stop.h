#pragma once
#include <functional>
#include <thread>

#include "core/log.h"
#include "core/os/descriptor.h"

namespace qtrain {

/// SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless it is ignored, as under nohup) from now on ask to stop: the first is
/// remembered, a later one ends the process at once with exit code 130. A later SIGHUP does not, and a SIGTERM or
/// SIGUSR1 only after a second: shells and `timeout` send them twice. SIGPIPE and SIGXFSZ are ignored, so that a failed
/// write is an error and not a death.
void install_stop_handlers();

/// Whether a stop was asked for. Read it between steps, rows and files.
bool stop_requested();

/// Whether what asked was Ctrl-C: a program that talks to its user stops its answer then, and goes on.
bool interrupted();

/// Throws ErrorKind::stopped when a stop was asked for: for work that leaves nothing behind.
void throw_if_stopped();

/// The point of no return of a command, right before its result takes its place: throws ErrorKind::stopped when a stop
/// was asked for. One that is asked for later is neither answered nor seen by the functions above.
void finish_or_stop();

/// The same for a command that has another end where a stop was asked for: returns false then.
bool finish_unless_stopped();

/// What the first stop behind that point is told, where the end of the work is still to be waited for; a text that
/// lives as long as the program.
void set_late_stop_answer(const char* text);

/// Whether a stop was asked for at any time, also behind finish_or_stop: for what may wait forever.
bool signal_came();

/// What a stop leads to from now on, for people, and what Ctrl-C does where that is something else; texts that live as
/// long as the program.
void set_stop_answer(const char* text, const char* on_interrupt = nullptr);

/// As if a signal had come, or had not.
void set_stop_requested(bool asked);

/// As long as this lives, a stop ends the process at once: for work that has nothing to put away.
class StopsAtOnce {
 public:
  StopsAtOnce();
  ~StopsAtOnce();
  StopsAtOnce(const StopsAtOnce&) = delete;
  StopsAtOnce& operator=(const StopsAtOnce&) = delete;
};

/// As long as this lives, a process that a stop ends at once gives the terminal on standard input the settings back
/// that it has now: for a line editor, which turns echo off. One at a time.
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
  /// `leave` tells of a stop in the end and returns the exit code, for StopsAtOnce.
  StopAnswers(Log& log, std::function<int()> leave);
  ~StopAnswers();
  StopAnswers(const StopAnswers&) = delete;
  StopAnswers& operator=(const StopAnswers&) = delete;

 private:
  void answer();

  Log& log_;
  std::function<int()> leave_;
  Descriptor heard_, bell_;
  std::thread thread_;
};

}  // namespace qtrain
