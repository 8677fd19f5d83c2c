#include "core/os/append.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.h"
#include "core/os/descriptor.h"
#include "core/os/output_place.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

/// What was appended of a text so far.
struct AppendedPart {
  off_t begin = 0, bytes = 0;
};

/// Removes a part that could not be completed, unless another program has appended something after or between its
/// bytes.
void remove_part(int file, const AppendedPart& part) {
  struct stat about {};
  if (part.bytes == 0 || ::fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return;
  if (part.begin + part.bytes == about.st_size && ::lseek(file, 0, SEEK_CUR) == about.st_size) [[maybe_unused]]
    const int failed = ::ftruncate(file, part.begin);
}

}  // namespace

void append_text(const std::filesystem::path& file, std::string_view text) {
  constexpr int kMilliseconds = 50;  // how often to check for a requested stop
  Descriptor out(::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666));
  if (out.get() < 0 && errno == ENXIO)
    fail(ErrorKind::disk, {.cause = "cannot be written: no program reads this FIFO or socket", .place = file.string()});
  if (out.get() < 0) fail_write(file, "opening", errno);
  for (AppendedPart done; !text.empty();) {
    const ssize_t written = ::write(out.get(), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      if (done.bytes == 0) done.begin = ::lseek(out.get(), 0, SEEK_CUR) - written;
      done.bytes += written;
      continue;
    }
    if (errno == EINTR) continue;
    if (const int error = errno; error != EAGAIN || stop_requested()) {
      remove_part(out.get(), done);
      fail_write(file, "writing", error);
    }
    pollfd writable{.fd = out.get(), .events = POLLOUT, .revents = 0};
    ::poll(&writable, 1, kMilliseconds);
  }
  if (const int error = out.close()) fail_write(file, "close", error);
}

}  // namespace qtrain
