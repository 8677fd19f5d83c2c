#include "train/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/error.h"

namespace qtrain {

OutputLock::OutputLock(const std::filesystem::path& output) {
  std::error_code error;
  std::filesystem::create_directories(output, error);
  file_ = ::open((output / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (file_ < 0) {
    const std::string reason = error ? error.message() : std::generic_category().message(errno);
    fail(ErrorKind::disk, {.cause = "cannot write to the output directory: " + reason,
                           .place = output.string(),
                           .remedy = "name another folder with output_dir"});
  }
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(file_);
  fail(ErrorKind::usage, {.cause = "another run is writing to this output directory",
                          .place = output.string(),
                          .remedy = "wait for it, or use another output_dir"});
}

OutputLock::~OutputLock() {
  ::close(file_);
}

}  // namespace qtrain
