#include "hub/local_contents.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/os/stop.h"
#include "core/sha1.h"
#include "core/sha256.h"

namespace qtrain {
namespace {

constexpr std::uint64_t kChunk = std::uint64_t{1} << 20;

template <class Hash>
void add_contents(Hash& hash, const LocalContents& contents) {
  for (std::uint64_t at = 0; at < contents.size(); at += kChunk) {
    throw_if_stopped();
    hash.add(contents.bytes(at, std::min(kChunk, contents.size() - at)));
  }
}

}  // namespace

LocalContents::LocalContents(std::filesystem::path file) : path_(std::move(file)) {
  file_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block
  struct stat info {};
  if (file_.get() < 0 || ::fstat(file_.get(), &info) != 0)
    fail(ErrorKind::input, {.cause = fmt::format("cannot be read: {}", std::strerror(errno)), .place = path_.string()});
  if (!S_ISREG(info.st_mode)) fail(ErrorKind::input, {.cause = "is not a regular file", .place = path_.string()});
  size_ = static_cast<std::uint64_t>(info.st_size);
}

LocalContents LocalContents::of_text(std::string text) {
  LocalContents contents;
  contents.size_ = text.size();
  contents.text_ = std::move(text);
  return contents;
}

std::size_t LocalContents::read(std::uint64_t offset, std::span<std::byte> room) const {
  if (path_.empty()) {
    const std::string_view rest = std::string_view(text_).substr(static_cast<std::size_t>(offset), room.size());
    std::memcpy(room.data(), rest.data(), rest.size());
    return rest.size();
  }
  ssize_t n = -1;
  do n = ::pread(file_.get(), room.data(), room.size(), static_cast<off_t>(offset));
  while (n < 0 && errno == EINTR);
  return n < 0 ? 0 : static_cast<std::size_t>(n);
}

std::string LocalContents::bytes(std::uint64_t begin, std::uint64_t size) const {
  std::string out(static_cast<std::size_t>(size), '\0');
  const std::span room = std::as_writable_bytes(std::span(out));
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t n = read(begin + done, room.subspan(done));
    if (n == 0) fail(ErrorKind::input, {.cause = "cannot be read, or became shorter", .place = path_.string()});
    done += n;
  }
  return out;
}

void LocalContents::require_unchanged(const Stamp& since) const {
  if (stamp() == since) return;
  fail(ErrorKind::input, {.cause = "changed while it was being pushed",
                          .place = path_.string(),
                          .remedy = "run the same command again when nothing writes there any more"});
}

LocalContents::Stamp LocalContents::stamp() const {
  struct stat info {};
  if (path_.empty() || ::fstat(file_.get(), &info) != 0) return {};
  return {.seconds = info.st_mtim.tv_sec,
          .nanoseconds = info.st_mtim.tv_nsec,
          .size = static_cast<std::uint64_t>(info.st_size)};
}

std::string sha256_of(const LocalContents& contents) {
  Sha256 hash;
  add_contents(hash, contents);
  return hash.hex();
}

std::string git_sha1_of(const LocalContents& contents) {
  Sha1 hash;
  hash.add(fmt::format("blob {}", contents.size()));
  hash.add(std::string_view("\0", 1));
  add_contents(hash, contents);
  return hash.hex();
}

}  // namespace qtrain
