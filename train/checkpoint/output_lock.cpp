#include "train/checkpoint/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "core/error.h"
#include "core/os/descriptor.h"

namespace qtrain {
namespace {

[[noreturn]] void cannot_write(const std::filesystem::path& output, const std::string& reason) {
  fail(ErrorKind::disk, {.cause = "cannot write to the output directory: " + reason,
                         .place = output.string(),
                         .remedy = "choose another output_dir"});
}

// Others share the lock for a moment while they look whether a run holds it (`is_locked`).
bool lock_for_run(int file) {
  constexpr int kTries = 100;
  constexpr std::chrono::milliseconds kPause{10};
  for (int i = 0; ::flock(file, LOCK_EX | LOCK_NB) != 0; ++i) {
    if (::flock(file, LOCK_SH | LOCK_NB) != 0 || i == kTries) return false;
    ::flock(file, LOCK_UN);
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace

void try_output(const std::filesystem::path& output) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(output, error);
  if (error) cannot_write(output, error.message());
  std::filesystem::file_status status = std::filesystem::status(there, error);
  for (; status.type() == std::filesystem::file_type::not_found && there != there.parent_path();
       status = std::filesystem::status(there, error))
    there = there.parent_path();
  if (status.type() == std::filesystem::file_type::none) cannot_write(output, error.message());
  if (!std::filesystem::is_directory(status)) cannot_write(output, there.string() + " is a file");
  std::string name = (there / ".qtrain-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) cannot_write(output, std::generic_category().message(errno));
  ::rmdir(name.c_str());
}

bool is_locked(const std::filesystem::path& output) {
  const Descriptor file(::open((output / ".lock").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return file.get() >= 0 && ::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

OutputLock::OutputLock(const std::filesystem::path& output) {
  std::error_code error;
  std::filesystem::create_directories(output, error);
  file_ = ::open((output / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (file_ < 0) {
    cannot_write(output, error ? error.message() : std::generic_category().message(errno));
  }
  if (lock_for_run(file_)) return;
  ::close(file_);
  fail(ErrorKind::usage, {.cause = "another run is writing to this output directory",
                          .place = output.string(),
                          .remedy = "wait for it to finish, or use another output_dir"});
}

OutputLock::~OutputLock() {
  ::close(file_);
}

}  // namespace qtrain
