#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "core/os/descriptor.h"
#include "core/os/direct_file.h"
#include "core/os/file.h"
#include "core/os/output_place.h"
#include "core/os/pending.h"
#include "core/os/slow_result.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

void sync_and_close(Descriptor& out, const fs::path& file) {
  if (::fsync(out.get()) != 0) fail_write(file, "fsync", errno);  // not retried: the kernel may have dropped the pages
  if (const int error = out.close()) fail_write(file, "close", error);
}

using NameNow = std::function<fs::path(const fs::path& file)>;

fs::path parent_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

/// A file under a temporary name that either becomes `target` as a whole or vanishes.
class PendingFile {
 public:
  explicit PendingFile(fs::path target) : target_(std::move(target)), pending_(pending_name(target_)) {
    remove_abandoned(target_.parent_path(), target_.filename());
    out_ = Descriptor(::open(pending_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (out_.get() < 0) fail_write(target_, "creating the file", errno);
    lock_pending(out_.get());
    buffer_.reserve(kBuffer);
  }
  ~PendingFile() {
    if (!committed_) ::unlink(pending_.c_str());
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void append(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kBuffer) flush();
    if (bytes.size() >= kBuffer) return write_all(bytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }

  /// Asks `name_now` for the name, if it is given, and calls `before`, right before the rename. Returns the name.
  const fs::path& commit(void (*before)(), const NameNow& name_now) {
    flush();
    keep_mode();
    sync_and_close(out_, target_);
    if (name_now) target_ = name_now(target_);
    require_regular();
    if (before != nullptr) before();
    if (::rename(pending_.c_str(), target_.c_str()) != 0) {
      if (errno != EBUSY) fail_write(target_, "rename", errno);
      copy_into_mount();
      return target_;
    }
    committed_ = true;
    sync_folder(parent_of(target_));
    return target_;
  }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 20;

  void flush() {
    write_all(buffer_);
    buffer_.clear();
  }
  void write_all(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto written = ::write(out_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_write(target_, "writing", errno);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  /// The mode of the file that is replaced, if there is one. Fails if it has become something other than a regular
  /// file.
  std::optional<mode_t> require_regular() const {
    struct stat before {};
    if (::lstat(target_.c_str(), &before) != 0) return {};
    if (!S_ISREG(before.st_mode))
      fail(ErrorKind::disk, {.cause = "is no longer a regular file", .place = target_.string()});
    return before.st_mode;
  }
  void keep_mode() {
    const std::optional<mode_t> mode = require_regular();
    if (!mode) return;
    [[maybe_unused]] const int failed = ::fchmod(out_.get(), *mode & 0777);  // on a file system without modes
  }

  // A file that is mounted by itself, as into a container, cannot be replaced, only written.
  void copy_into_mount() {
    const Descriptor in(::open(pending_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (in.get() < 0) fail_write(target_, "opening", errno);
    out_ = Descriptor(::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (out_.get() < 0) fail_write(target_, "opening", errno);
    buffer_.resize(kBuffer);
    off_t size = 0;
    while (true) {
      const auto got = ::read(in.get(), buffer_.data(), buffer_.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_write(target_, "reading the temporary file", errno);
      if (got == 0) break;
      write_all(std::span(buffer_).first(static_cast<std::size_t>(got)));
      size += got;
    }
    if (::ftruncate(out_.get(), size) != 0) fail_write(target_, "shortening", errno);
    sync_and_close(out_, target_);
  }

  fs::path target_, pending_;
  Descriptor out_;
  std::vector<std::byte> buffer_;
  bool committed_ = false;
};

using Produce = std::function<void(const std::function<void(std::span<const std::byte>)>&)>;

template <class Out>
void write_with(Out& out, const Produce& produce) {
  produce([&](std::span<const std::byte> bytes) { out.append(bytes); });
}

/// What to do right before a file gets its name.
struct BeforeCommit {
  void (*call)() = nullptr;
  NameNow name_now = {};
};

fs::path write_through(const fs::path& file, const Produce& produce, const BeforeCommit& before) {
  const OutputPlace place = output_place(file);
  if (place.mode == WriteMode::in_place) {
    DirectFile out(place.file);
    write_with(out, produce);
    out.close();
    return file;
  }
  PendingFile pending(place.file);
  write_with(pending, produce);
  const fs::path name = pending.commit(before.call, before.name_now);
  return name == place.file ? file : name;
}

void append_all(std::string_view contents, const std::function<void(std::span<const std::byte>)>& append) {
  append(std::as_bytes(std::span(contents)));
}

}  // namespace

void write_file(const fs::path& file, const Produce& produce) {
  write_through(file, produce, {});
}

void write_file(const fs::path& file, std::string_view contents) {
  write_file(file, [&](const auto& append) { append_all(contents, append); });
}

void write_result(const fs::path& file, const Produce& produce) {
  write_through(file, produce, {.call = finish_or_stop});
}

fs::path write_result(const SlowResult& result, const Produce& produce) {
  return write_through(result.file, produce, {.call = finish_or_stop, .name_now = result.name_now});
}

void write_result(const fs::path& file, std::string_view contents) {
  write_result(file, [&](const auto& append) { append_all(contents, append); });
}

SharedFile::SharedFile(const fs::path& file, std::optional<std::uint64_t> size)
    : file_(file), out_(::open(file.c_str(), O_WRONLY | O_CLOEXEC | (size ? O_CREAT | O_TRUNC : 0), 0666)) {
  if (out_.get() < 0) fail_write(file_, "opening", errno);
  if (size && ::ftruncate(out_.get(), static_cast<off_t>(*size)) != 0) fail_write(file_, "allocating space", errno);
}

void SharedFile::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto written = ::pwrite(out_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_write(file_, "writing", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void SharedFile::sync() {
  sync_and_close(out_, file_);
}

void sync_folder(const fs::path& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) fail_write(path, "opening the folder", errno);
  if (::fsync(folder.get()) != 0 && errno != EINVAL) fail_write(path, "fsync of the folder", errno);
}

void rename_synced(const fs::path& from, const fs::path& to) {
  sync_folder(from);
  if (::rename(from.c_str(), to.c_str()) != 0) fail_write(to, "rename", errno);
  sync_folder(parent_of(to));
}

}  // namespace qtrain
