#include "core/os/direct_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/os/output_place.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

constexpr int kPollMilliseconds = 50;  // how often to check for a stop while waiting for a reader

}  // namespace

DirectFile::DirectFile(std::filesystem::path file) : file_(std::move(file)) {
  while (out_.get() < 0) {
    out_ = Descriptor(::open(file_.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (out_.get() < 0 && !waits_for_reader(errno)) fail_write(file_, "opening", errno);
  }
}

bool DirectFile::waits_for_reader(int error) const {
  std::error_code ignored;
  if (error != EINTR && !(error == ENXIO && std::filesystem::is_fifo(file_, ignored))) return false;
  throw_if_stopped();
  ::poll(nullptr, 0, kPollMilliseconds);
  return true;
}

void DirectFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::write(out_.get(), bytes.data(), bytes.size());
    if (written >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      continue;
    }
    if (errno != EINTR && errno != EAGAIN) fail_write(file_, "writing", errno);
    throw_if_stopped();
    pollfd writable{.fd = out_.get(), .events = POLLOUT, .revents = 0};
    ::poll(&writable, 1, kPollMilliseconds);
  }
}

void DirectFile::close() {
  if (const int error = out_.close()) fail_write(file_, "close", error);
}

}  // namespace qtrain
