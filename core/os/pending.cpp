#include "core/os/pending.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".tmp";
constexpr const char* kLock = ".lock";  // in a pending folder

// File systems allow names of 255 bytes, so the longest ones have to leave room for the process id and the ending.
std::string beginning_of(const fs::path& name) {
  constexpr std::size_t kLongest = 230, kEnd = 40;
  std::string text = name.string();
  if (text.size() > kLongest) text.erase(kLongest - kEnd, text.size() - kLongest);
  return fmt::format(".{}.", text);
}

// The process id in a pending name that starts with `beginning`; 0 if it is a different name.
pid_t process_of(std::string_view name, std::string_view beginning) {
  if (!name.starts_with(beginning) || !name.ends_with(kEnding)) return 0;
  if (name.size() < beginning.size() + kEnding.size()) return 0;
  name = name.substr(beginning.size(), name.size() - beginning.size() - kEnding.size());
  pid_t process = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  return error == std::errc() && stop == name.data() + name.size() ? process : 0;
}

// A name with this process's own id was left by an earlier process with that id, unless it is locked.
bool is_gone(pid_t process) {
  return process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH);
}

bool is_locked(const fs::path& pending) {
  std::error_code ignored;
  const fs::path path = fs::is_directory(pending, ignored) ? pending / kLock : pending;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.get() >= 0 && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

}  // namespace

fs::path pending_name(const fs::path& target) {
  return target.parent_path() / fmt::format("{}{}{}", beginning_of(target.filename()), ::getpid(), kEnding);
}

void lock_pending(int descriptor) {
  [[maybe_unused]] const int failed = ::flock(descriptor, LOCK_EX | LOCK_NB);  // not every file system has locks
}

Descriptor lock_pending_folder(const fs::path& folder) {
  Descriptor lock(::open((folder / kLock).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (lock.get() >= 0) lock_pending(lock.get());
  return lock;
}

void unlock_pending_folder(const fs::path& folder, Descriptor& lock) {
  ::unlink((folder / kLock).c_str());
  lock.close();
}

bool is_abandoned(const fs::path& pending) {
  const std::string name = pending.filename().string();
  const std::size_t before = name.size() < kEnding.size() ? 0 : name.rfind('.', name.size() - kEnding.size() - 1);
  const pid_t process = before == name.npos ? 0 : process_of(name, name.substr(0, before + 1));
  return process > 0 && is_gone(process) && !is_locked(pending);
}

void remove_abandoned(const fs::path& folder, const fs::path& name) {
  std::error_code error;
  const std::string beginning = beginning_of(name);
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const pid_t process = process_of(entry.path().filename().string(), beginning);
    std::error_code ignored;
    if (process > 0 && is_gone(process) && !is_locked(entry.path())) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace qtrain
