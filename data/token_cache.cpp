#include "data/token_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/idx.h"
#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "data/token_file.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".tokens";
constexpr auto kStale = std::chrono::hours(24);  // age of abandoned temporary files
constexpr std::int64_t kDigestChunk = std::int64_t{8} << 20;
constexpr std::int64_t kRecent = 2'000'000'000;  // ns; a file this young may change without changing its times

[[noreturn]] void fail_cache(const fs::path& path, int error) {
  fail(ErrorKind::disk, {.cause = "the token cache cannot be used: " + std::generic_category().message(error),
                         .place = path.string(),
                         .remedy = "set token_cache_dir to another folder, or to \"\" for no cache"});
}

/// Exclusive lock file among processes, held for the object's lifetime.
class ProcessLock {
 public:
  ProcessLock(const fs::path& file, const std::function<void(bool first)>& while_waiting)
      : file_(::open(file.c_str(), O_CREAT | O_RDONLY | O_NONBLOCK | O_CLOEXEC,
                     0666)) {  // the file may belong to another user
    if (file_.get() < 0) fail_cache(file, errno);
    for (bool first = true; ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0; first = false) {
      if (errno != EWOULDBLOCK && errno != EINTR) fail_cache(file, errno);
      while_waiting(first);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

 private:
  Descriptor file_;
};

/// Shared lock held by every process from before it writes a file until it has mapped it. The last one evicts files.
class WriterLock {
 public:
  explicit WriterLock(const fs::path& file)
      : file_(::open(file.c_str(), O_CREAT | O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0666)) {
    if (file_.get() < 0) fail_cache(file, errno);
    while (::flock(file_.get(), LOCK_SH) != 0)
      if (errno != EINTR) fail_cache(file, errno);
  }
  /// Whether no other process is writing; if so, none starts until this one is done.
  bool alone() const { return ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0; }

 private:
  Descriptor file_;
};

/// Identifies whether a file has changed.
struct FileState {
  std::string path;
  std::int64_t size = 0, modified = 0, changed = 0;  // times in ns
  std::uint64_t inode = 0, device = 0;

  static std::int64_t nanoseconds(const timespec& t) { return t.tv_sec * 1'000'000'000 + t.tv_nsec; }
  explicit FileState(const fs::path& file) : path(absolute_path(file).string()) {
    struct stat s {};
    if (::stat(path.c_str(), &s) != 0) return;
    size = s.st_size;
    modified = nanoseconds(s.st_mtim);
    changed = nanoseconds(s.st_ctim);
    inode = s.st_ino;
    device = s.st_dev;
  }
  bool recent() const {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return nanoseconds(now) - std::max(modified, changed) < kRecent;
  }
  Json json() const { return {path, size, modified, changed, inode, device}; }
};

std::optional<Digest> remembered(const fs::path& memo, const FileState& state) {
  std::error_code ignored;
  if (!fs::exists(memo, ignored)) return {};
  try {
    Json json = read_json(memo, {.max_bytes = 1 << 16});
    if (!json.is_object() || json["state"] != state.json()) return {};
    if (!json["high"].is_number_unsigned() || !json["low"].is_number_unsigned()) return {};
    return Digest{json["high"], json["low"]};
  } catch (const Error&) {  // damaged, will be rewritten
    return {};
  }
}

void remember(const fs::path& memo, const FileState& state, const Digest& digest) {
  try {
    write_file(memo, dump_json({{"state", state.json()}, {"high", digest.high}, {"low", digest.low}}));
  } catch (const Error&) {  // the memo only saves time
  }
}

std::optional<Dataset> open_if_whole(const fs::path& file, const Digest& key, Log& log) {
  try {
    std::optional<Dataset> found = open_token_file(file, key);
    if (found) ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);  // mark as recently used
    return found;
  } catch (const Error& e) {
    log.warn("token cache: {}; rebuilding it", e.what());
    return {};
  }
}

struct CacheEntry {
  fs::path path;
  std::uint64_t size;
  fs::file_time_type used;
};

// Whether this is the name of a token file. Users may keep other files in the folder.
bool is_own_name(std::string_view name) {
  constexpr std::size_t kHexDigits = 2 * sizeof(Digest);
  return name.size() == kHexDigits + kSuffix.size() && name.ends_with(kSuffix) &&
         name.find_first_not_of("0123456789abcdef") == kHexDigits;
}

// Whether this is the name of a token file that is being written, ".NAME.PROCESS.tmp".
bool is_own_draft(const fs::path& name) {
  return is_pending_file(name) && is_own_name(name.stem().stem().string().substr(1));
}

std::vector<CacheEntry> entries_of(const fs::path& folder) {
  std::vector<CacheEntry> entries;
  std::error_code error;
  for (const fs::directory_entry& e : fs::directory_iterator(folder, error)) {
    const fs::file_time_type used = e.last_write_time(error);
    if (error) continue;
    const bool stale = fs::file_time_type::clock::now() - used > kStale;
    const std::string name = e.path().filename().string();
    if (stale && is_own_draft(name)) fs::remove(e.path(), error);
    if (!is_own_name(name)) continue;
    const std::uintmax_t size = e.file_size(error);
    if (!error) entries.push_back({e.path(), size, used});
  }
  return entries;
}

}  // namespace

TokenCache::TokenCache(Options options) : options_(std::move(options)) {
  std::error_code error;
  fs::create_directories(options_.folder / "files", error);
  if (error) fail_cache(options_.folder, error.value());
  if (::access(options_.folder.c_str(), W_OK | X_OK) != 0) fail_cache(options_.folder, errno);
}

fs::path TokenCache::path_of(const Digest& key) const {
  return options_.folder / (key.hex() + std::string(kSuffix));
}

Dataset TokenCache::get(const Recipe& recipe, Log& log) {
  const fs::path file = path_of(recipe.key);
  if (auto found = open_if_whole(file, recipe.key, log)) return *std::move(found);
  const ProcessLock lock(options_.folder / (".lock-" + recipe.key.hex().substr(0, 2)), [&](bool first) {
    if (first) log.info("token cache: another process is preparing the same rows; waiting for it");
    if (recipe.while_waiting) recipe.while_waiting();
  });
  if (auto found = open_if_whole(file, recipe.key, log)) return *std::move(found);
  const WriterLock writing(options_.folder / ".lock-room");
  write_token_file(file, recipe.key, recipe.build);
  auto made = open_token_file(file, recipe.key);
  if (!made) fail_cache(file, ENOENT);
  if (writing.alone()) evict(file, log);
  return *std::move(made);
}

// Processes that have an evicted file mapped can keep using it.
void TokenCache::evict(const fs::path& keep, Log& log) const {
  std::vector<CacheEntry> entries = entries_of(options_.folder);
  std::sort(entries.begin(), entries.end(), [](const CacheEntry& a, const CacheEntry& b) { return a.used < b.used; });
  std::uint64_t total = 0;
  for (const CacheEntry& e : entries) total += e.size;
  for (const CacheEntry& e : entries) {
    if (total <= options_.limit) break;
    std::error_code error;
    if (e.path == keep || !fs::remove(e.path, error)) continue;
    total -= e.size;
    log.debug("token cache: removed {} to keep the folder below {} bytes", e.path.string(), options_.limit);
  }
}

Digest TokenCache::digest_of_file(const fs::path& file, ThreadPool& pool) {
  const FileState state(file);
  const fs::path memo = options_.folder / "files" / (digest_of(state.path).hex() + ".json");
  if (const auto known = remembered(memo, state)) return *known;
  const bool recent = state.recent();  // check before reading, which may take long
  const Digest digest = digest_contents(file, pool);
  if (!recent && FileState(file).json() == state.json()) remember(memo, state, digest);
  return digest;
}

Digest digest_contents(const fs::path& file, ThreadPool& pool) {
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  const bool readable = in.get() >= 0 && ::fstat(in.get(), &info) == 0 && S_ISREG(info.st_mode);
  if (!readable) fail(ErrorKind::input, {.cause = "cannot be read", .place = file.string()});
  std::vector<Digest> chunks(idx((info.st_size + kDigestChunk - 1) / kDigestChunk));
  pool.run(static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i, int) {
    throw_if_stopped();
    std::vector<std::byte> bytes(idx(std::min(kDigestChunk, info.st_size - i * kDigestChunk)));
    std::size_t done = 0;
    for (ssize_t n = 1; n > 0 && done < bytes.size(); done += idx(n))
      n = std::max<ssize_t>(
          ::pread(in.get(), bytes.data() + done, bytes.size() - done, i * kDigestChunk + static_cast<off_t>(done)), 0);
    if (done < bytes.size()) fail(ErrorKind::input, {.cause = "cannot be read", .place = file.string()});
    Hasher hasher;
    hasher.add(bytes);
    chunks[idx(i)] = hasher.digest();
  });
  Hasher hasher;
  hasher.add(std::as_bytes(std::span<const Digest>(chunks)));
  return hasher.digest();
}

}  // namespace qtrain
