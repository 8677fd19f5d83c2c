#include "core/os/spool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdlib>
#include <span>
#include <string>
#include <system_error>

#include "core/error.h"

namespace qtrain {
namespace {

constexpr std::size_t kWriteBuffer = std::size_t{1} << 20;

[[noreturn]] void fail_spool(const std::filesystem::path& folder, const char* action, int error) {
  fail(error == ENOMEM ? ErrorKind::memory : ErrorKind::disk,
       {.cause = std::string(action) + " failed: " + std::generic_category().message(error),
        .place = folder.string(),
        .remedy = error == ENOSPC || error == EDQUOT ? "free some space and run again" : ""});
}

}  // namespace

Spool::~Spool() {
  unmap();
}

Spool::Spool(Spool&& other) noexcept
    : options_(std::move(other.options_)),
      memory_(std::move(other.memory_)),
      file_(std::move(other.file_)),
      written_(std::exchange(other.written_, 0)),
      mapped_(std::exchange(other.mapped_, {})) {}

void Spool::unmap() {
  if (!mapped_.empty()) ::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
  mapped_ = {};
}

void Spool::open_file() {
  std::string name = (options_.folder / ".spool.XXXXXX").string();
  file_ = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (file_.get() < 0) fail_spool(options_.folder, "creating a temporary file", errno);
  ::unlink(name.c_str());
}

void Spool::flush() {
  if (file_.get() < 0) open_file();
  for (std::span<const std::byte> left(memory_); !left.empty();) {
    const ssize_t n = ::pwrite(file_.get(), left.data(), left.size(), static_cast<off_t>(written_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_spool(options_.folder, "writing a temporary file", errno);
    written_ += static_cast<std::uint64_t>(n);
    left = left.subspan(static_cast<std::size_t>(n));
  }
  memory_.clear();
}

void Spool::append(std::span<const std::byte> bytes) {
  check(mapped_.empty(), "a spool is written before it is read");
  memory_.insert(memory_.end(), bytes.begin(), bytes.end());
  const std::size_t limit = file_.get() >= 0 ? kWriteBuffer : options_.memory;
  if (memory_.size() > limit && !options_.folder.empty()) flush();
}

std::span<const std::byte> Spool::bytes() {
  if (file_.get() < 0) return memory_;
  if (!memory_.empty()) flush();
  if (!mapped_.empty()) return mapped_;
  void* base = ::mmap(nullptr, written_, PROT_READ, MAP_SHARED, file_.get(), 0);
  if (base == MAP_FAILED) fail_spool(options_.folder, "mapping a temporary file", errno);
  mapped_ = {static_cast<const std::byte*>(base), static_cast<std::size_t>(written_)};
  return mapped_;
}

void Spool::release() const {
  if (!mapped_.empty()) ::madvise(const_cast<std::byte*>(mapped_.data()), mapped_.size(), MADV_DONTNEED);
}

void Spool::clear() {
  unmap();
  memory_.clear();
  file_.close();
  written_ = 0;
}

}  // namespace qtrain
