#include "core/os/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "core/os/descriptor.h"
#include "core/os/shrunk_file.h"

namespace qtrain {
namespace {

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void fail_read(const std::filesystem::path& file, int error) {
  const bool missing = error == ENOENT || error == ENOTDIR;
  fail(error == ENOMEM ? ErrorKind::memory : ErrorKind::input,
       {.cause = missing ? "no such file" : "cannot be read: " + errno_text(error),
        .place = file.string(),
        .remedy = missing ? "check the path" : ""});
}

/// Opens a regular file for reading and returns its size too. O_NONBLOCK, because a FIFO must be refused, not waited
/// for.
std::pair<int, std::uint64_t> open_regular(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail_read(file, errno);
  struct stat info {};
  const int error = ::fstat(fd, &info) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(info.st_mode)) return {fd, static_cast<std::uint64_t>(info.st_size)};
  ::close(fd);
  if (error != 0) fail_read(file, error);
  fail(ErrorKind::input,
       {.cause = S_ISDIR(info.st_mode) ? "is a folder, not a file" : "is not a regular file", .place = file.string()});
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) {
  const auto [fd, size] = open_regular(file);
  const Descriptor in(fd);
  if (size == 0) return;
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, in.get(), 0);
  if (base == MAP_FAILED) fail_read(file, errno);
  bytes_ = {static_cast<const std::byte*>(base), static_cast<std::size_t>(size)};
  name_mapping(bytes_, file.string());
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  forget_mapping(bytes_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
  if (part.data() < bytes_.data() || part.data() + part.size() > bytes_.data() + bytes_.size()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  // Release only whole pages: those at the ends may hold neighboring data that is still read.
  const auto offset = static_cast<std::size_t>(part.data() - bytes_.data());
  const std::size_t begin = (offset + page - 1) / page * page, end = (offset + part.size()) / page * page;
  if (begin < end) ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

bool is_lfs_pointer(std::string_view contents) {
  return contents.starts_with("version https://git-lfs.github.com/spec/");
}

void fail_lfs_pointer(const std::filesystem::path& file) {
  fail(ErrorKind::input, {.cause = "is a git-lfs pointer, not the file itself",
                          .place = file.string(),
                          .remedy = "run git lfs pull in its repository to fetch the file"});
}

std::string read_text(const std::filesystem::path& file, std::uint64_t max_bytes) {
  const auto [fd, size] = open_regular(file);
  const Descriptor in(fd);
  if (size > max_bytes)
    fail(ErrorKind::input,
         {.cause = fmt::format("has {} bytes, more than the {} allowed for its kind", size, max_bytes),
          .place = file.string()});
  std::string text(static_cast<std::size_t>(size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const auto got = ::read(in.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_read(file, errno);
    if (got == 0) break;  // the file became shorter while it was read
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

bool appending_begins_line(const std::filesystem::path& file) {
  std::error_code absent;
  if (!std::filesystem::is_regular_file(file, absent)) return true;
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  char last = '\n';
  const off_t end = in.get() < 0 ? 0 : ::lseek(in.get(), 0, SEEK_END);
  if (end > 0 && ::pread(in.get(), &last, 1, end - 1) != 1) return true;
  return last == '\n';
}

void for_each_chunk(const std::filesystem::path& file, const std::function<void(std::span<const std::byte>)>& take) {
  constexpr std::size_t kChunk = std::size_t{1} << 22;
  const MappedFile mapped(file);
  for (auto left = mapped.bytes(); !left.empty();) {
    const auto chunk = left.first(std::min(kChunk, left.size()));
    take(chunk);
    mapped.release(chunk);
    left = left.subspan(chunk.size());
  }
}

bool is_pending_file(const std::filesystem::path& name) {
  const std::string process = name.stem().extension().string();  // ".NAME.PROCESS.tmp"
  return name.string().starts_with('.') && name.extension() == ".tmp" && process.size() > 1 &&
         process.find_first_not_of("0123456789", 1) == std::string::npos;
}

std::filesystem::path user_cache_folder() {
  const auto folder = [](const char* variable) {
    const char* path = std::getenv(variable);
    return path != nullptr && *path == '/' ? std::filesystem::path(path) : std::filesystem::path();
  };
  if (const auto caches = folder("XDG_CACHE_HOME"); !caches.empty()) return caches / "qtrain";
  const auto home = folder("HOME");
  return home.empty() ? home : home / ".cache" / "qtrain";
}

}  // namespace qtrain
