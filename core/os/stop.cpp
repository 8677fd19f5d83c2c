#include "core/os/stop.h"

#include <fcntl.h>
#include <signal.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <initializer_list>
#include <system_error>

#include "core/error.h"
#include "core/os/orderly_stop.h"
#include "core/os/terminal.h"

namespace qtrain {
namespace {

constexpr int kSecondInterrupt = 130;
constexpr char kSignal = 's', kInterrupt = 'i', kLate = 'l', kEnd = 'e';
constexpr const char* kUsualAnswer = "Stopping. Press Ctrl-C again to quit now.";

// A signal handler can only reach static storage; nothing else in the program is static and mutable.
// `closed` is the state after finish_or_stop, `too_late` that after a signal in it.
enum class StopState : std::uint8_t { none, requested, closed, too_late };
std::atomic<StopState> stop_state = StopState::none;
std::atomic<bool> at_once = false;
std::atomic<int> stop_signal = 0;  // the signal number
std::atomic<std::int64_t> stop_time_ms = 0;
std::atomic<int> answer_pipe = -1;  // the pipe that StopAnswers reads
std::atomic<bool> erases = false;   // stderr may show a live line
std::atomic<const char*> answer_text = kUsualAnswer, interrupt_text = nullptr, late_text = nullptr;
std::atomic<bool> terminal_kept = false;
termios kept_terminal;  // valid if terminal_kept

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

bool is_second(int signal) {
  return signal == SIGINT || (signal != SIGHUP && now_ms() - stop_time_ms > 1000);
}

void notify(int descriptor, char what) {
  [[maybe_unused]] const ssize_t written = ::write(descriptor, &what, 1);
}

/// Records a request to stop. Returns whether it is the first.
bool request_stop() {
  StopState before = StopState::none;
  if (stop_state.compare_exchange_strong(before, StopState::requested)) return true;
  return before == StopState::closed && stop_state.compare_exchange_strong(before, StopState::too_late);
}

void restore_terminal() {
  if (terminal_kept) tcsetattr(STDIN_FILENO, TCSANOW, &kept_terminal);
}

extern "C" void on_stop_signal(int signal) {
  const int error = errno;
  if (request_stop()) {
    stop_signal = signal;
    stop_time_ms = now_ms();
    const bool late = stop_state == StopState::too_late;
    if (answer_pipe >= 0 && (!late || late_text != nullptr))
      notify(answer_pipe, late ? kLate : signal == SIGINT ? kInterrupt : kSignal);
  } else if (is_second(signal)) {
    leave_terminal();
    _exit(kSecondInterrupt);
  }
  errno = error;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);  // without SA_RESTART, so that a blocking read of a terminal returns
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void leave_terminal() {
  if (erases) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, kEraseBelow.data(), kEraseBelow.size());
  restore_terminal();
}

void install_stop_handlers() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) handle(signal, on_stop_signal);
  if (!is_ignored(SIGHUP)) handle(SIGHUP, on_stop_signal);
  for (const int signal : {SIGPIPE, SIGXFSZ}) handle(signal, SIG_IGN);
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) sigaddset(&stops, signal);
  sigprocmask(SIG_UNBLOCK, &stops, nullptr);  // a launcher starts its ranks with these signals blocked
}

bool stop_requested() {
  return stop_state == StopState::requested;
}
bool signal_came() {
  return stop_state == StopState::requested || stop_state == StopState::too_late;
}
bool interrupted() {
  return stop_requested() && stop_signal == SIGINT;
}
void throw_if_stopped() {
  if (stop_requested())
    fail(ErrorKind::stopped, {.cause = "stopped by a signal", .remedy = "run the same command again"});
}
void finish_or_stop() {
  if (!finish_unless_stopped()) throw_if_stopped();
}
bool finish_unless_stopped() {
  StopState before = StopState::none;
  return stop_state.compare_exchange_strong(before, StopState::closed) || before != StopState::requested;
}
void reopen_stops() {
  StopState before = StopState::closed;
  if (stop_state.compare_exchange_strong(before, StopState::none) || before != StopState::too_late) return;
  stop_state = StopState::requested;
}
void set_late_stop_answer(const char* text) {
  late_text = text;
}
void set_stop_answer(const char* text, const char* on_interrupt) {
  answer_text = text;
  interrupt_text = on_interrupt;
}
void set_stop_requested(bool value) {
  stop_state = value ? StopState::requested : StopState::none;
  stop_signal = value ? SIGINT : 0;
}

StopsAtOnce::StopsAtOnce() {
  at_once = true;
  throw_if_stopped();
}
StopsAtOnce::~StopsAtOnce() {
  at_once = false;
}

void stop_in_order(const std::function<void()>& work) {
  const bool before = at_once.exchange(false);
  try {
    work();
  } catch (...) {
    at_once = before;
    throw;
  }
  at_once = before;
  throw_if_stopped();
}

TerminalSettings::TerminalSettings() {
  terminal_kept = tcgetattr(STDIN_FILENO, &kept_terminal) == 0;
}
TerminalSettings::~TerminalSettings() {
  terminal_kept = false;
}

StopAnswers::StopAnswers(Log& log, std::function<int()> leave) : log_(log), leave_(std::move(leave)) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    fail(ErrorKind::memory, {.cause = "cannot create a pipe: " + std::generic_category().message(errno),
                             .remedy = "raise the limit of open files (ulimit -n)"});
  pipe_out_ = Descriptor(ends[0]);
  pipe_in_ = Descriptor(ends[1]);
  thread_ = std::thread([this] { answer(); });
  answer_pipe = pipe_in_.get();
  erases = terminal_of(STDERR_FILENO).redraws;
}

StopAnswers::~StopAnswers() {
  answer_pipe = -1;
  notify(pipe_in_.get(), kEnd);
  thread_.join();
}

void StopAnswers::answer() {
  for (char what = 0; ::read(pipe_out_.get(), &what, 1) != 0 && what != kEnd;) {
    if (what != kSignal && what != kInterrupt && what != kLate) continue;  // a read that a signal interrupted
    if (at_once && what != kLate) _exit(leave_());
    const char* special = what == kLate ? late_text.load() : what == kInterrupt ? interrupt_text.load() : nullptr;
    const std::string_view text = special != nullptr ? special : answer_text.load();
    if (!text.empty()) log_.warn("{}", text);
    what = 0;
  }
}

}  // namespace qtrain
