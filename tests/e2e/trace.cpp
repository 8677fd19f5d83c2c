#include "tests/e2e/trace.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/os/descriptor.h"

namespace qtrain::e2e {
namespace {

namespace fs = std::filesystem;

/// Where a call's arguments name the file that it is about; below 0: nowhere.
struct CallKind {
  const char* name;
  int path = -1, folder = -1;           ///< a path, and the descriptor of the folder that it is relative to
  int target = -1, target_folder = -1;  ///< the same for the target of a rename
  int descriptor = -1;
  int flags = -1;  ///< of open: counts only if the file is opened for writing
};

const std::map<std::uint64_t, CallKind>& kinds() {
  static const std::map<std::uint64_t, CallKind> table{
      {SYS_open, {.name = "open", .path = 0, .flags = 1}},
      {SYS_openat, {.name = "openat", .path = 1, .folder = 0, .flags = 2}},
      {SYS_write, {.name = "write", .descriptor = 0}},
      {SYS_pwrite64, {.name = "write", .descriptor = 0}},
      {SYS_ftruncate, {.name = "ftruncate", .descriptor = 0}},
      {SYS_fsync, {.name = "fsync", .descriptor = 0}},
      {SYS_fdatasync, {.name = "fsync", .descriptor = 0}},
      {SYS_rename, {.name = "rename", .path = 0, .target = 1}},
      {SYS_renameat, {.name = "rename", .path = 1, .folder = 0, .target = 3, .target_folder = 2}},
      {SYS_renameat2, {.name = "rename", .path = 1, .folder = 0, .target = 3, .target_folder = 2}},
      {SYS_unlink, {.name = "unlink", .path = 0}},
      {SYS_unlinkat, {.name = "unlink", .path = 1, .folder = 0}},
      {SYS_rmdir, {.name = "rmdir", .path = 0}},
      {SYS_mkdir, {.name = "mkdir", .path = 0}},
      {SYS_mkdirat, {.name = "mkdir", .path = 1, .folder = 0}},
  };
  return table;
}

/// A thread of the traced program that has stopped at a system call.
class StoppedThread {
 public:
  StoppedThread(pid_t id, const __ptrace_syscall_info& info) : id_(id), info_(info) {}

  std::optional<FileCall> file_call() const {
    const auto found = kinds().find(info_.entry.nr);
    if (found == kinds().end()) return {};
    const CallKind& kind = found->second;
    if (kind.flags >= 0 && (argument(kind.flags) & (O_WRONLY | O_RDWR | O_CREAT)) == 0) return {};
    FileCall call{.name = kind.name, .path = {}, .target = {}};
    call.path =
        kind.descriptor >= 0 ? opened(static_cast<int>(argument(kind.descriptor))) : path(kind.path, kind.folder);
    if (kind.target >= 0) call.target = path(kind.target, kind.target_folder);
    return call;
  }

 private:
  std::uint64_t argument(int index) const { return info_.entry.args[index]; }
  fs::path proc(const std::string& name) const { return "/proc/" + std::to_string(id_) + "/" + name; }
  fs::path opened(int descriptor) const {
    std::error_code closed;
    return fs::read_symlink(descriptor == AT_FDCWD ? proc("cwd") : proc("fd/" + std::to_string(descriptor)), closed);
  }
  fs::path path(int index, int folder) const {
    const fs::path name = text(argument(index));
    return name.is_absolute() ? name : opened(folder < 0 ? AT_FDCWD : static_cast<int>(argument(folder))) / name;
  }
  std::string text(std::uint64_t address) const {
    const Descriptor memory(::open(proc("mem").c_str(), O_RDONLY | O_CLOEXEC));
    std::array<char, 4096> bytes{};
    const ssize_t got = ::pread(memory.get(), bytes.data(), bytes.size() - 1, static_cast<off_t>(address));
    return got > 0 ? std::string(bytes.data()) : std::string();
  }

  pid_t id_;
  const __ptrace_syscall_info& info_;
};

[[noreturn]] void become(const Launch& launch, int out, int err) {
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : launch.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 && ::raise(SIGSTOP) == 0) ::execv(argv[0], argv.data());
  ::_exit(127);
}

class Tracer {
 public:
  Tracer(pid_t program, const std::function<int(const FileCall&)>& before) : program_(program), before_(before) {}

  /// Returns the status with which the program ends.
  int run() {
    int status = 0;
    check(::waitpid(program_, &status, 0) == program_ && WIFSTOPPED(status), "the program cannot be traced");
    ::ptrace(PTRACE_SETOPTIONS, program_, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
    resume(program_, 0);
    for (pid_t thread; (thread = ::waitpid(-1, &status, __WALL)) > 0;) {
      if (WIFSTOPPED(status))
        resume(thread, stopped(thread, WSTOPSIG(status)));
      else if (thread == program_)
        break;
    }
    return status;
  }

 private:
  static constexpr int kAtCall = SIGTRAP | 0x80;

  static void resume(pid_t thread, int signal) { ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal); }

  // Returns the signal to pass on.
  int stopped(pid_t thread, int signal) {
    if (signal == kAtCall) at_call(thread);
    return signal == kAtCall || signal == SIGTRAP || signal == SIGSTOP ? 0 : signal;
  }

  void at_call(pid_t thread) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) <= 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
      if (const auto failing = failing_.extract(thread))
        ::ptrace(PTRACE_POKEUSER, thread, offsetof(user_regs_struct, rax), -static_cast<long>(failing.mapped()));
    } else if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
      const auto call = StoppedThread(thread, info).file_call();
      const int error = call ? before_(*call) : 0;
      if (error == 0) return;
      ::ptrace(PTRACE_POKEUSER, thread, offsetof(user_regs_struct, orig_rax), -1L);  // skips the call
      failing_[thread] = error;
    }
  }

  pid_t program_;
  const std::function<int(const FileCall&)>& before_;
  std::map<pid_t, int> failing_;  // the errors of skipped calls, by thread
};

}  // namespace

bool can_trace() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Outcome run_traced(const Launch& launch, const std::function<int(const FileCall&)>& before) {
  const Descriptor out(memory_file("stdout")), err(memory_file("stderr"));
  const pid_t program = ::fork();
  check(program >= 0, "the program does not start");
  if (program == 0) become(launch, out.get(), err.get());
  const int status = Tracer(program, before).run();
  return {.code = exit_code(status), .out = contents(out.get()), .err = contents(err.get())};
}

}  // namespace qtrain::e2e
