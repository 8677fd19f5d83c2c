#include "core/event_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <string>
#include <system_error>

#include "core/error.h"
#include "core/os/file.h"

namespace qtrain {
namespace {

// A FIFO is opened for reading too, so that this neither fails nor waits without a reader, and early events are kept.
int mode_of(const std::filesystem::path& file) {
  struct stat what = {};
  return ::stat(file.c_str(), &what) == 0 && S_ISFIFO(what.st_mode) ? O_RDWR : O_WRONLY;
}

}  // namespace

EventStream::EventStream(const std::filesystem::path& file)
    : unwritten_(appending_begins_line(file) ? "" : "\n"),  // what wrote there before may have been cut off
      file_(::open(file.c_str(), mode_of(file) | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644)) {
  if (file_.get() < 0)
    fail(ErrorKind::disk, {.cause = "cannot write events: " + std::generic_category().message(errno),
                           .place = file.string(),
                           .remedy = "--events needs a file or a FIFO"});
}

// Removes from `text` what could be written.
void EventStream::send(std::string_view& text) {
  while (!text.empty() && !broken_) {
    const ssize_t n = ::write(file_.get(), text.data(), text.size());
    if (n > 0)
      text.remove_prefix(static_cast<std::size_t>(n));
    else if (n < 0 && errno == EAGAIN)
      return;
    else if (n == 0 || errno != EINTR)
      broken_ = true;
  }
}

void EventStream::write(std::string_view name, std::string_view members) {
  const double time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::string line = fmt::format(R"({{"event": "{}", "time": {:.3f})", name, time);
  if (members.size() > 2) line += fmt::format(", {}", members.substr(1, members.size() - 2));
  line += "}\n";
  const std::lock_guard lock(mutex_);
  std::string_view rest = unwritten_;
  send(rest);
  unwritten_ = std::string(rest);
  rest = line;
  if (unwritten_.empty()) send(rest);
  if (rest.size() == line.size())
    ++dropped_;
  else
    unwritten_ = rest;
}

}  // namespace qtrain
