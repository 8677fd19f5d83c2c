#include "tests/e2e/process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "core/error.h"

extern char** environ;

namespace qtrain::e2e {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);

int memory_file(const char* name) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC);
  check(fd >= 0, "no memory file");
  return fd;
}

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

std::string contents(int fd) {
  std::string text;
  std::array<char, 1 << 16> buffer;
  ::lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = ::read(fd, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  return text;
}

}  // namespace

Process::Process(const Launch& launch) : out_(memory_file("stdout")), err_(memory_file("stderr")) {
  const int in = input_file(launch.input);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out_, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err_, STDERR_FILENO);
  if (!launch.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, launch.folder.c_str());
  std::vector<char*> argv;
  for (const std::string& word : launch.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int failed = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in);
  check(failed == 0, "the program does not start");
}

Process::~Process() {
  if (!reap()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
  }
  ::close(out_);
  ::close(err_);
}

void Process::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

bool Process::reap() {
  if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

bool Process::running() {
  return !reap();
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
  outcome.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  outcome.out = contents(out_);
  outcome.err = contents(err_);
  return outcome;
}

}  // namespace qtrain::e2e
