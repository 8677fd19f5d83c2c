#include "core/event_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <system_error>

#include "core/error.h"

namespace qtrain {
namespace {

/// Whether a line of this length may be written without waiting: files always take it, pipes up to PIPE_BUF bytes.
bool takes_at_once(int file) {
  pollfd poll{.fd = file, .events = POLLOUT};
  return ::poll(&poll, 1, 0) == 1 && (poll.revents & POLLOUT) != 0;
}

}  // namespace

EventStream::EventStream(const std::filesystem::path& file)
    : file_(::open(file.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644)) {
  if (file_.get() < 0)
    fail(ErrorKind::disk, {.cause = "events cannot be written: " + std::generic_category().message(errno),
                           .place = file.string(),
                           .remedy = "--events wants a file or a FIFO"});
}

void EventStream::write(std::string_view name, std::string_view members) {
  const double time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string line = fmt::format(R"({{"event": "{}", "time": {:.3f})", name, time);
  if (members.size() > 2) line += fmt::format(", {}", members.substr(1, members.size() - 2));
  line += "}\n";
  const std::lock_guard lock(mutex_);
  if (broken_ || !takes_at_once(file_.get())) return;
  for (std::string_view left = line; !left.empty();) {
    const ssize_t n = ::write(file_.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      broken_ = true;
      return;
    }
    left.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace qtrain
