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

#include "core/error.h"
#include "core/os/terminal.h"

namespace qtrain {
namespace {

constexpr int kSecondInterrupt = 130;
constexpr char kSignal = 's', kInterrupt = 'i', kLate = 'l', kEnd = 'e';
constexpr const char* kUsualAnswer = "Stopping. Press Ctrl-C again to quit now.";

// A signal handler can only reach static storage; nothing else in the program is static and mutable.
enum class Asked : std::uint8_t { no, yes, never_again, too_late };
std::atomic<Asked> asked = Asked::no;
std::atomic<bool> at_once = false;
std::atomic<int> asked_by = 0;           // the signal
std::atomic<std::int64_t> asked_at = 0;  // milliseconds
std::atomic<int> bell = -1;              // where StopAnswers listens
std::atomic<bool> erases = false;        // there is a line that can be drawn again
std::atomic<const char*> answer_text = kUsualAnswer, interrupt_text = nullptr, late_text = nullptr;
std::atomic<bool> terminal_kept = false;
termios kept_terminal;  // where terminal_kept is set

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

bool is_second(int signal) {
  return signal == SIGINT || (signal != SIGHUP && now_ms() - asked_at > 1000);
}

void ring(int descriptor, char what) {
  [[maybe_unused]] const ssize_t written = ::write(descriptor, &what, 1);
}

/// Whether this is the first time.
bool ask() {
  Asked before = Asked::no;
  if (asked.compare_exchange_strong(before, Asked::yes)) return true;
  return before == Asked::never_again && asked.compare_exchange_strong(before, Asked::too_late);
}

void give_terminal_back() {
  if (terminal_kept) tcsetattr(STDIN_FILENO, TCSANOW, &kept_terminal);
}

extern "C" void on_stop_signal(int signal) {
  const int error = errno;
  if (ask()) {
    asked_by = signal;
    asked_at = now_ms();
    const bool late = asked == Asked::too_late;
    if (bell >= 0 && (!late || late_text != nullptr))
      ring(bell, late ? kLate : signal == SIGINT ? kInterrupt : kSignal);
  } else if (is_second(signal)) {
    if (erases) [[maybe_unused]]
      const ssize_t written = ::write(STDERR_FILENO, kEraseBelow.data(), kEraseBelow.size());
    give_terminal_back();
    _exit(kSecondInterrupt);
  }
  errno = error;
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);  // without SA_RESTART: a blocking read of a terminal returns
}

bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void install_stop_handlers() {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) handle(signal, on_stop_signal);
  if (!is_ignored(SIGHUP)) handle(SIGHUP, on_stop_signal);
  for (const int signal : {SIGPIPE, SIGXFSZ}) handle(signal, SIG_IGN);
  sigset_t stops;
  sigemptyset(&stops);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) sigaddset(&stops, signal);
  sigprocmask(SIG_UNBLOCK, &stops, nullptr);  // a launcher blocks them until here
}

bool stop_requested() {
  return asked == Asked::yes;
}
bool signal_came() {
  return asked == Asked::yes || asked == Asked::too_late;
}
bool interrupted() {
  return stop_requested() && asked_by == SIGINT;
}
void throw_if_stopped() {
  if (stop_requested())
    fail(ErrorKind::stopped, {.cause = "stopped by a signal", .remedy = "run the same command again"});
}
void finish_or_stop() {
  if (!finish_unless_stopped()) throw_if_stopped();
}
bool finish_unless_stopped() {
  Asked before = Asked::no;
  return asked.compare_exchange_strong(before, Asked::never_again) || before != Asked::yes;
}
void set_late_stop_answer(const char* text) {
  late_text = text;
}
void set_stop_answer(const char* text, const char* on_interrupt) {
  answer_text = text;
  interrupt_text = on_interrupt;
}
void set_stop_requested(bool value) {
  asked = value ? Asked::yes : Asked::no;
  asked_by = value ? SIGINT : 0;
}

StopsAtOnce::StopsAtOnce() {
  at_once = true;
  throw_if_stopped();
}
StopsAtOnce::~StopsAtOnce() {
  at_once = false;
}

TerminalSettings::TerminalSettings() {
  terminal_kept = tcgetattr(STDIN_FILENO, &kept_terminal) == 0;
}
TerminalSettings::~TerminalSettings() {
  terminal_kept = false;
}

StopAnswers::StopAnswers(Log& log, std::function<int()> leave) : log_(log), leave_(std::move(leave)) {
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC) == 0, "no pipe");
  heard_ = Descriptor(ends[0]);
  bell_ = Descriptor(ends[1]);
  thread_ = std::thread([this] { answer(); });
  bell = bell_.get();
  erases = terminal_of(STDERR_FILENO).redraws;
}

StopAnswers::~StopAnswers() {
  bell = -1;
  ring(bell_.get(), kEnd);
  thread_.join();
}

void StopAnswers::answer() {
  for (char what = 0; ::read(heard_.get(), &what, 1) != 0 && what != kEnd;) {
    if (what != kSignal && what != kInterrupt && what != kLate) continue;  // a read that a signal interrupted
    if (at_once && what != kLate) _exit(leave_());
    const char* special = what == kLate ? late_text.load() : what == kInterrupt ? interrupt_text.load() : nullptr;
    const std::string_view text = special != nullptr ? special : answer_text.load();
    if (!text.empty()) log_.warn("{}", text);
    what = 0;
  }
}

}  // namespace qtrain
