#include "dist/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <map>

#include "core/error.h"

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

/// What the new process needs, made before there is one: it may not allocate.
struct Prepared {
  std::vector<std::string> variables;
  std::vector<char*> arguments, environment;
  pid_t parent = ::getpid();
  int messages = -1, nothing = -1;
};

[[noreturn]] void become(const Prepared& p) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGINT);        // after another signal it ends a rank at once
  ::signal(SIGTTOU, SIG_IGN);               // in the background of the terminal, on which rank 0 shows how far it is
  if (::getppid() != p.parent) ::_exit(1);  // it died before it could be watched
  if (p.messages >= 0) {
    ::dup2(p.messages, STDERR_FILENO);
    ::dup2(p.nothing, STDOUT_FILENO);
  }
  ::dup2(p.nothing, STDIN_FILENO);
  ::execve("/proc/self/exe", p.arguments.data(), p.environment.data());
  ::_exit(127);
}

}  // namespace

std::string ChildEnd::text() const {
  return signal != 0 ? fmt::format("signal {} ({})", signal, strsignal(signal))
                     : fmt::format("exit code {}", exit_code);
}

Child::Child(const Start& start) {
  Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC)), write_end;
  if (start.output == Output::piped) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      fail(ErrorKind::internal, {.cause = "no pipe can be made", .place = strerror(errno)});
    messages_ = Descriptor(ends[0]);
    write_end = Descriptor(ends[1]);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  Prepared p{.variables = environment_with(start.variables), .messages = write_end.get(), .nothing = nothing.get()};
  p.arguments = pointers(start.command);
  p.environment = pointers(p.variables);
  // A signal that comes before the new program can handle it waits until it does: install_stop_handlers.
  sigset_t stops, before;
  sigemptyset(&stops);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) sigaddset(&stops, signal);
  ::sigprocmask(SIG_BLOCK, &stops, &before);
  pid_ = ::fork();
  if (pid_ == 0) become(p);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) fail(ErrorKind::internal, {.cause = "no process can be started", .place = std::strerror(errno)});
  ::setpgid(pid_, pid_);
}

Child::~Child() {
  if (pid_ < 0 || end_) return;
  send(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), end_(other.end_), messages_(std::move(other.messages_)) {}

std::optional<ChildEnd> Child::poll() {
  if (end_) return end_;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return {};
  end_ = WIFSIGNALED(status) ? ChildEnd{.signal = WTERMSIG(status)} : ChildEnd{.exit_code = WEXITSTATUS(status)};
  return end_;
}

void Child::send(int signal) const {
  if (pid_ > 0 && !end_) ::kill(pid_, signal);
}

}  // namespace qtrain
