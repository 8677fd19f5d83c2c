#include "hub/blob_download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "core/os/descriptor.h"
#include "core/os/output_place.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/sha1.h"
#include "core/sha256.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// The hash by which the hub names contents: SHA-256 for large files, that of a git blob for others.
class ContentHash {
 public:
  explicit ContentHash(const RepoFile& file) {
    if (!file.sha256.empty()) {
      large_.emplace();
      return;
    }
    small_.emplace();
    small_->add(fmt::format("blob {}", file.size));
    small_->add(std::string_view("\0", 1));
  }
  void add(std::span<const std::byte> bytes) { large_ ? large_->add(bytes) : small_->add(bytes); }
  std::string hex() { return large_ ? large_->hex() : small_->hex(); }

 private:
  std::optional<Sha256> large_;
  std::optional<Sha1> small_;
};

/// The lock of huggingface_hub on a blob.
class BlobLock {
 public:
  explicit BlobLock(const fs::path& file) {
    constexpr std::chrono::milliseconds kPause{50};
    constexpr mode_t kMode = 0664;
    create_folders(file.parent_path());
    file_ = Descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (file_.get() < 0) fail_write(file, "creating the lock", errno);
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;  // some file systems have no locks
      throw_if_stopped();
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  Descriptor file_;
};

/// The download of one blob, whose lock is held.
class BlobDownload {
 public:
  BlobDownload(HttpClient& client, const BlobRequest& request, const fs::path& blob)
      : client_(client), request_(request), blob_(blob), part_(blob.string() + ".incomplete"), hash_(request.file) {
    open_part(0);
    struct stat info {};
    if (::fstat(out_.get(), &info) != 0) fail_write(part_, "reading", errno);
    if (!S_ISREG(info.st_mode))
      fail(ErrorKind::disk, {.cause = "is not a regular file", .place = part_.string(), .remedy = "remove it"});
    if (info.st_nlink == 1) return;
    if (::unlink(part_.c_str()) != 0) fail_write(part_, "removing", errno);  // another name of it keeps its contents
    open_part(O_EXCL);
  }

  void run() {
    constexpr int kTries = 2;  // what an earlier call has left may be damaged
    for (int i = 0; i < kTries; ++i) {
      if (i == 0)
        take_over();
      else
        start_over();
      receive();
      if (hash_.hex() == request_.file.etag()) return put_in_place();
    }
    start_over();
    fail(ErrorKind::input,
         {.cause = fmt::format("{} was fetched, but does not have the hash that the hub says", request_.file.path),
          .place = request_.name.text(),
          .remedy = "try again; if that does not help, a proxy may change what it passes on"});
  }

 private:
  const RepoFile& file() const { return request_.file; }

  void open_part(int flags) {
    constexpr mode_t kMode = 0666;
    out_ = Descriptor(::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | flags, kMode));
    if (out_.get() < 0) fail_write(part_, "opening", errno);
  }

  /// Continues after the bytes that an earlier call has left.
  void take_over() {
    struct stat info {};
    if (::fstat(out_.get(), &info) != 0) fail_write(part_, "reading", errno);
    if (static_cast<std::uint64_t>(info.st_size) > file().size) return start_over();
    std::vector<std::byte> chunk(std::size_t{1} << 20);
    for (ssize_t got = 1; got > 0;) {
      throw_if_stopped();
      got = ::pread(out_.get(), chunk.data(), chunk.size(), static_cast<off_t>(have_));
      if (got < 0) return start_over();
      hash_.add(std::span(chunk.data(), static_cast<std::size_t>(got)));
      have_ += static_cast<std::uint64_t>(got);
    }
    tell(static_cast<std::int64_t>(have_));
  }

  void start_over() {
    empty();
    if (write_error_ != 0) fail_write(part_, "shortening", write_error_);
  }

  void empty() {
    if (::ftruncate(out_.get(), 0) != 0) write_error_ = errno;
    tell(-static_cast<std::int64_t>(have_));
    restarts_ += have_ > 0 ? 1 : 0;
    have_ = 0;
    hash_ = ContentHash(file());
  }

  void tell(std::int64_t bytes) {
    if (request_.advance && !request_.advance(bytes)) gave_up_ = true;
  }

  void receive() {
    const std::string url = file_url(request_.hub, request_.name, request_.commit, file().path),
                      token = hub_token(request_.hub);
    std::uint64_t furthest = have_;
    restarts_ = 0;
    for (int failures = 0; have_ < file().size;) {
      const std::uint64_t before = have_;
      first_piece_ = true;
      const HttpReply reply = client_.send({.url = url,
                                            .token = token,
                                            .use_netrc = request_.hub.implicit_token,
                                            .begin = have_,
                                            .take = [&](const auto& head, auto bytes) { return take(head, bytes); }});
      if (write_error_ != 0) fail_write(part_, "writing", write_error_);
      if (gave_up_) fail(ErrorKind::stopped, {.cause = "another download failed"});
      if (too_much_) refuse_size();
      if (have_ >= file().size) return;
      failures = have_ > before ? 0 : failures + 1;
      furthest = std::max(furthest, have_);
      const bool came = reply.status == 200 || reply.status == 206, out_of_range = reply.status == 416;
      if (out_of_range) start_over();
      if (!came && !out_of_range && !is_passing(reply)) throw refused_request(request_.hub, request_.name, reply);
      if (std::max(failures, restarts_) >= request_.rules.attempts) {
        if (came || out_of_range) refuse_size(furthest);
        throw refused_request(request_.hub, request_.name, reply);
      }
      if (failures > 0) wait_before_retry(request_.rules, failures, reply);
    }
  }

  /// Must not throw: the caller is libcurl.
  bool take(const HttpReply& head, std::span<const std::byte> bytes) {
    if (first_piece_ && have_ > 0) {
      const bool continues =
          head.status == 206 && head.header("content-range").starts_with(fmt::format("bytes {}-", have_));
      if (!continues) empty();
      if (!continues && (head.status == 206 || write_error_ != 0)) return false;
    }
    first_piece_ = false;
    too_much_ = bytes.size() > file().size - have_;
    if (too_much_ || gave_up_) return false;
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n =
          ::pwrite(out_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(have_ + done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return write_failed(errno);
      done += static_cast<std::size_t>(n);
    }
    hash_.add(bytes);
    have_ += bytes.size();
    tell(static_cast<std::int64_t>(bytes.size()));
    return !gave_up_;
  }

  bool write_failed(int error) {
    write_error_ = error;
    return false;
  }

  [[noreturn]] void refuse_size(std::uint64_t came = 0) {
    start_over();
    fail(ErrorKind::input,
         {.cause = fmt::format("the hub says that {} has {} bytes, but sends {}", file().path, file().size,
                               too_much_ ? std::string("more") : fmt::format("only {}", came)),
          .place = request_.name.text(),
          .remedy = "try again; if that does not help, a proxy may change what it passes on"});
  }

  void put_in_place() {
    if (::fdatasync(out_.get()) != 0) fail_write(part_, "writing", errno);
    std::error_code error;
    if (const fs::file_type type = fs::symlink_status(blob_, error).type();
        type != fs::file_type::not_found && type != fs::file_type::regular && type != fs::file_type::symlink)
      fail(ErrorKind::disk, {.cause = "is not a regular file", .place = blob_.string(), .remedy = "remove it"});
    if (::rename(part_.c_str(), blob_.c_str()) != 0) fail_write(blob_, "renaming", errno);
  }

  HttpClient& client_;
  const BlobRequest& request_;
  fs::path blob_, part_;
  ContentHash hash_;
  Descriptor out_;
  std::uint64_t have_ = 0;
  bool first_piece_ = true, too_much_ = false, gave_up_ = false;
  int write_error_ = 0, restarts_ = 0;
};

/// A relative link, so that the cache can be moved.
void link_to_blob(const fs::path& pointer, const fs::path& blob) {
  const fs::path target = blob.lexically_relative(pointer.parent_path());
  if (::symlink(target.c_str(), pointer.c_str()) == 0 || errno == EEXIST) return;
  fail_write(pointer, "creating the link", errno);
}

}  // namespace

bool is_fetched(const HubCache& cache, const HubName& name, const std::string& commit, const std::string& file) {
  std::error_code ignored;
  return fs::exists(cache.snapshot_folder(name, commit) / file, ignored);
}

// A blob of another size was cut off by another program, or the hub says something else than for an earlier commit.
bool has_blob(const fs::path& blobs, const RepoFile& file) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(blobs / file.etag(), error);
  return !error && size == file.size;
}

void download_blob(HttpClient& client, const HubCache& cache, const BlobRequest& request) {
  const fs::path folder = cache.folder_of(request.name), blob = folder / "blobs" / request.file.etag(),
                 pointer = cache.snapshot_folder(request.name, request.commit) / request.file.path;
  std::error_code ignored;
  const auto whole = static_cast<std::int64_t>(request.file.size);
  if (fs::exists(pointer, ignored)) return void(request.advance && request.advance(whole));
  create_folders(blob.parent_path());
  create_folders(pointer.parent_path());
  const BlobLock lock(cache.folder() / ".locks" / folder.filename() / (request.file.etag() + ".lock"));
  if (has_blob(blob.parent_path(), request.file))
    void(request.advance && request.advance(whole));
  else
    BlobDownload(client, request, blob).run();
  if (fs::is_symlink(pointer, ignored) && !fs::exists(pointer, ignored)) fs::remove(pointer, ignored);
  link_to_blob(pointer, blob);
}

}  // namespace qtrain
