#include "tests/e2e/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "core/error.h"

extern char** environ;

namespace qtrain::e2e {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);

int input_file(const std::string& text) {
  const int fd = memory_file("stdin");
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    check(n > 0, "cannot write to a memory file");
    done += static_cast<std::size_t>(n);
  }
  ::lseek(fd, 0, SEEK_SET);
  return fd;
}

std::array<int, 2> pipe_ends() {
  std::array<int, 2> ends{};
  check(::pipe2(ends.data(), O_CLOEXEC) == 0, "no pipe");
  return ends;
}

/// The write end of a pipe that nobody reads.
int broken_pipe() {
  const std::array<int, 2> ends = pipe_ends();
  ::close(ends[0]);
  return ends[1];
}

/// The write end of a full pipe; `unread` becomes its read end.
int full_pipe(int& unread) {
  const std::array<int, 2> ends = pipe_ends();
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const std::array<char, 4096> page{};
  while (::write(ends[1], page.data(), page.size()) > 0) {
  }
  ::fcntl(ends[1], F_SETFL, 0);
  unread = ends[0];
  return ends[1];
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=') + 1); };
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::none_of(changes.begin(), changes.end(), [&](const auto& c) { return name_of(c) == name_of(*entry); }))
      all.emplace_back(*entry);
  return all;
}

}  // namespace

int memory_file(const char* name) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC);
  check(fd >= 0, "no memory file");
  return fd;
}

// Does not move the offset at which the program writes.
std::string contents(int fd) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (ssize_t n; (n = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(text.size()))) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  return text;
}

int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Process::Process(const Launch& launch) {
  out_ = launch.reader_gone ? broken_pipe() : launch.reader_waits ? full_pipe(unread_) : memory_file("stdout");
  int in = -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t hangup;  // tests run under nohup inherit an ignored SIGHUP, and would pass it on
  sigemptyset(&hangup);
  sigaddset(&hangup, SIGHUP);
  posix_spawnattr_setsigdefault(&attributes, &hangup);
  short flags = POSIX_SPAWN_SETSIGDEF;
  if (launch.columns) {  // a new session: the first terminal that it opens becomes its controlling terminal
    open_terminal(*launch.columns);
    flags |= POSIX_SPAWN_SETSID;
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, terminal_name_.c_str(), O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDERR_FILENO);
  } else {
    in = input_file(launch.input);
    err_ = memory_file("stderr");
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_, STDERR_FILENO);
  }
  posix_spawn_file_actions_adddup2(&actions, out_, STDOUT_FILENO);
  if (!launch.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, launch.folder.c_str());
  const std::vector<std::string> environment = environment_with(launch.environment);
  posix_spawnattr_setflags(&attributes, flags);
  const int failed = ::posix_spawn(&pid_, launch.argv[0].c_str(), &actions, &attributes, pointers(launch.argv).data(),
                                   pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (in >= 0) ::close(in);
  check(failed == 0, "the program does not start");
}

Process::~Process() {
  if (!reap()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
  }
  close_terminal();
  ::close(out_);
  if (unread_ >= 0) ::close(unread_);
  if (err_ >= 0) ::close(err_);
}

void Process::open_terminal(int columns) {
  terminal_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  check(terminal_ >= 0 && ::grantpt(terminal_) == 0 && ::unlockpt(terminal_) == 0, "no terminal");
  terminal_name_ = ::ptsname(terminal_);
  resize(columns);
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  reader_ = std::thread([this] {
    std::array<pollfd, 2> ends{
        {{.fd = terminal_, .events = POLLIN, .revents = 0}, {.fd = wake_, .events = POLLIN, .revents = 0}}};
    std::array<char, 4096> buffer;
    while (::poll(ends.data(), ends.size(), -1) > 0) {
      const ssize_t n = (ends[0].revents & POLLIN) != 0 ? ::read(terminal_, buffer.data(), buffer.size()) : 0;
      if (n > 0) {
        const std::lock_guard lock(shown_mutex_);
        shown_.append(buffer.data(), static_cast<std::size_t>(n));
      } else if (ends[1].revents != 0) {
        return;
      } else {
        std::this_thread::sleep_for(kPoll);  // the program has not opened it yet, or has ended
      }
    }
  });
}

// What was written before can still be read.
void Process::close_terminal() {
  if (terminal_ < 0) return;
  const std::uint64_t one = 1;
  check(::write(wake_, &one, sizeof one) == sizeof one, "cannot wake the reader");
  reader_.join();
  ::close(terminal_);
  ::close(wake_);
  terminal_ = -1;
}

void Process::type(const std::string& text) const {
  check(::write(terminal_, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "cannot type");
}

void Process::resize(int columns) const {
  const winsize size{.ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  check(::ioctl(terminal_, TIOCSWINSZ, &size) == 0, "cannot resize");
}

void Process::hang_up() {
  close_terminal();
}

void Process::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

bool Process::handles(int number) const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  constexpr std::string_view kCaught = "SigCgt:";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(kCaught))
      return (std::strtoull(line.c_str() + kCaught.size(), nullptr, 16) >> (number - 1) & 1) != 0;
  return false;
}

bool Process::reap() {
  rusage used{};
  if (ended_ || ::wait4(pid_, &status_, WNOHANG, &used) != pid_) return ended_;
  peak_kib_ = used.ru_maxrss;
  cpu_seconds_ = static_cast<double>(used.ru_utime.tv_sec) + static_cast<double>(used.ru_utime.tv_usec) * 1e-6;
  return ended_ = true;
}

bool Process::running() {
  return !reap();
}

std::string Process::said() {
  if (err_ >= 0) return contents(err_);
  const std::lock_guard lock(shown_mutex_);
  return shown_;
}

bool Process::waits_for(const std::string& text, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < deadline) {
    const bool over = reap();
    if (said().find(text) != std::string::npos) return true;
    if (over) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

Outcome Process::wait(std::chrono::seconds limit) {
  Outcome outcome;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!reap()) {
    if (!outcome.timed_out && std::chrono::steady_clock::now() > deadline) {
      outcome.timed_out = true;
      ::kill(pid_, SIGKILL);
    }
    std::this_thread::sleep_for(kPoll);
  }
  close_terminal();
  outcome.code = exit_code(status_);
  outcome.out = contents(out_);
  outcome.err = said();
  outcome.peak_kib = peak_kib_;
  outcome.cpu_seconds = cpu_seconds_;
  return outcome;
}

}  // namespace qtrain::e2e
