#include "dist/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <map>

#include "core/error.h"
#include "dist/final_error.h"

extern char** environ;

namespace qtrain {
namespace {

std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::map<std::string, std::string> all;
  const auto add = [&](const std::string& entry) { all[entry.substr(0, entry.find('='))] = entry; };
  for (char** e = environ; *e; ++e) add(*e);
  for (const std::string& v : variables) add(v);
  std::vector<std::string> entries;
  entries.reserve(all.size());
  for (const auto& [name, entry] : all) entries.push_back(entry);
  return entries;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> p;
  p.reserve(texts.size() + 1);
  for (const std::string& t : texts) p.push_back(const_cast<char*>(t.c_str()));
  p.push_back(nullptr);
  return p;
}

/// What the new process needs, prepared before the fork, because it must not allocate.
struct Prepared {
  std::vector<std::string> variables;
  std::vector<char*> arguments, environment;
  pid_t parent = ::getpid();
  int messages = -1, dev_null = -1, final_error = -1;
};

[[noreturn]] void become(const Prepared& p) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGINT);        // as a second signal, it ends a rank immediately
  ::signal(SIGTTOU, SIG_IGN);               // lets rank 0 show its progress from the background of the terminal
  if (::getppid() != p.parent) ::_exit(1);  // it died before the signal was set
  if (p.messages >= 0) {
    ::dup2(p.messages, STDERR_FILENO);
    ::dup2(p.dev_null, STDOUT_FILENO);
  }
  ::dup2(p.dev_null, STDIN_FILENO);
  ::fcntl(p.final_error, F_SETFD, 0);  // stays open across execve
  ::execve("/proc/self/exe", p.arguments.data(), p.environment.data());
  ::_exit(127);
}

// A limit of the system is a usage error, not a bug.
[[noreturn]] void fail_to_start(const char* what, int error) {
  const bool files = error == EMFILE || error == ENFILE;
  fail(files || error == EAGAIN ? ErrorKind::usage : ErrorKind::internal,
       {.cause = fmt::format("{} ({})", what, std::strerror(error)),
        .remedy = fmt::format("raise the limit of {}, or start fewer ranks on this machine (nproc)",
                              files ? "open files (ulimit -n)" : "processes (ulimit -u)")});
}

struct Pipe {
  Descriptor read, write;
};

// Makes a pipe whose read end does not block.
Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_to_start("cannot create a pipe to a rank", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

}  // namespace

std::string ChildEnd::text() const {
  return signal != 0 ? fmt::format("signal {} ({})", signal, strsignal(signal))
                     : fmt::format("exit code {}", exit_code);
}

Child::Child(const Start& start) {
  Descriptor dev_null(::open("/dev/null", O_RDWR | O_CLOEXEC)), write_end;
  if (dev_null.get() < 0) fail_to_start("/dev/null cannot be opened for a rank", errno);
  if (start.output == Output::piped) {
    Pipe pipe = make_pipe();
    messages_ = std::move(pipe.read);
    write_end = std::move(pipe.write);
  }
  Pipe error_pipe = make_pipe();
  error_pipe_ = std::move(error_pipe.read);
  std::vector<std::string> variables = start.variables;
  variables.push_back(final_error_variable(error_pipe.write.get()));
  Prepared p{.variables = environment_with(variables),
             .messages = write_end.get(),
             .dev_null = dev_null.get(),
             .final_error = error_pipe.write.get()};
  p.arguments = pointers(start.command);
  p.environment = pointers(p.variables);
  // Signals stay blocked until the new program can handle them: install_stop_handlers.
  sigset_t stops, before;
  sigemptyset(&stops);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) sigaddset(&stops, signal);
  ::sigprocmask(SIG_BLOCK, &stops, &before);
  pid_ = ::fork();
  if (pid_ == 0) become(p);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) fail_to_start("cannot start a process", errno);
  ::setpgid(pid_, pid_);
}

Child::~Child() {
  if (pid_ < 0 || end_) return;
  send(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      end_(other.end_),
      messages_(std::move(other.messages_)),
      error_pipe_(std::move(other.error_pipe_)),
      final_error_(std::move(other.final_error_)) {}

void Child::read_final_error() {
  char part[4096];
  for (ssize_t n = 0; (n = ::read(error_pipe_.get(), part, sizeof part)) > 0;)
    final_error_.append(part, static_cast<std::size_t>(n));
}

std::optional<ChildEnd> Child::poll() {
  if (end_) return end_;
  int status = 0;
  const bool ended = ::waitpid(pid_, &status, WNOHANG) == pid_;
  read_final_error();
  if (!ended) return {};
  end_ = WIFSIGNALED(status) ? ChildEnd{.signal = WTERMSIG(status)} : ChildEnd{.exit_code = WEXITSTATUS(status)};
  return end_;
}

// Counts the bytes that the process has written, plus one for each time it is seen waiting for a disk (as in fsync).
std::optional<std::uint64_t> Child::written() {
  std::ifstream io(fmt::format("/proc/{}/io", pid_)), stat(fmt::format("/proc/{}/stat", pid_));
  constexpr std::string_view kWritten = "wchar: ";
  std::uint64_t bytes = 0;
  bool known = false;
  for (std::string line; !known && std::getline(io, line);) {
    known = line.starts_with(kWritten);
    if (known) bytes = std::stoull(line.substr(kWritten.size()));
  }
  if (!known) return {};
  std::string status;
  std::getline(stat, status);
  const auto name_end = status.rfind(") ");
  const bool waits_for_disk = name_end != std::string::npos && status[name_end + 2] == 'D';
  return bytes + (waits_for_disk ? ++disk_waits_ : disk_waits_);
}

void Child::send(int signal) const {
  if (pid_ > 0 && !end_) ::kill(pid_, signal);
}

}  // namespace qtrain
