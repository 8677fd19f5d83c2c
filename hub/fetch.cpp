#include "hub/fetch.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>

#include "core/formats/json_object.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "core/progress.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

std::string size_text(double bytes) {
  constexpr double kKb = 1e3, kMb = 1e6, kGb = 1e9;
  if (bytes < kMb) return fmt::format("{:.1f} kB", bytes / kKb);
  return bytes < kGb ? fmt::format("{:.1f} MB", bytes / kMb) : fmt::format("{:.2f} GB", bytes / kGb);
}

void require_space(const fs::path& folder, std::uint64_t bytes) {
  fs::path there = absolute_path(folder);
  std::error_code ignored;
  while (!fs::exists(there, ignored) && there != there.parent_path()) there = there.parent_path();
  struct statvfs info {};
  if (::statvfs(there.c_str(), &info) != 0) return;
  const std::uint64_t free = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  if (bytes > free)
    fail(ErrorKind::disk,
         {.cause = fmt::format("{} are to be fetched, but only {} are free", size_text(static_cast<double>(bytes)),
                               size_text(static_cast<double>(free))),
          .place = folder.string(),
          .remedy = "free some space, or set HF_HUB_CACHE to a folder on another disk"});
}

/// What is still to come of files: contents that another commit has, or that two files share, are there once.
struct ToFetch {
  std::int64_t files = 0;
  std::uint64_t bytes = 0;
  std::uint64_t total = 0;  ///< the size of all, which downloads report in the end
};

ToFetch count_missing(const fs::path& blobs, const std::vector<RepoFile>& missing) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto add = [](std::uint64_t& sum, std::uint64_t more) { sum += std::min(more, kMost - sum); };
  ToFetch count;
  std::set<std::string> seen;
  for (const RepoFile& file : missing) {
    add(count.total, file.size);
    std::error_code error;
    if (!seen.insert(file.etag()).second || has_blob(blobs, file)) continue;
    const std::uintmax_t have = fs::file_size(blobs / (file.etag() + ".incomplete"), error);
    add(count.bytes, error ? file.size : file.size - std::min<std::uint64_t>(file.size, have));
    ++count.files;
  }
  return count;
}

/// The first names of files, and how many more there are.
std::string names_of(const std::vector<RepoFile>& files) {
  constexpr std::size_t kShown = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(files.size(), kShown); ++i) names += (i > 0 ? ", " : "") + files[i].path;
  return files.size() <= kShown ? names : fmt::format("{} and {} more", names, files.size() - kShown);
}

/// What has come of a set of downloads, shown from time to time.
class FetchProgress {
 public:
  FetchProgress(Log& log, std::string what, std::uint64_t total)
      : log_(log), what_(std::move(what)), total_(static_cast<std::int64_t>(total)) {}
  ~FetchProgress() { log_.end_live(); }
  FetchProgress(const FetchProgress&) = delete;
  FetchProgress& operator=(const FetchProgress&) = delete;

  void add(std::int64_t bytes) { done_ += bytes; }

  void show() {
    constexpr std::chrono::seconds kLines{10}, kRate{2};
    const auto now = Clock::now();
    if (now - measured_ >= kRate) {
      const double seconds = std::chrono::duration<double>(now - measured_).count();
      rate_ = std::max(0.0, static_cast<double>(done_ - done_then_) / seconds);
      measured_ = now;
      done_then_ = done_;
    }
    const std::string unit = fmt::format("fetching {}, {}{}", what_, size_text(static_cast<double>(total_)),
                                         rate_ > 0 ? fmt::format(" at {}/s", size_text(rate_)) : "");
    Progress p{.step = done_, .total = total_, .unit = unit, .counted = false};
    if (rate_ > 0) p.eta_seconds = static_cast<double>(total_ - done_) / rate_;
    if (log_.shows_live()) return log_.live(p);
    if (now - said_ < kLines) return;
    said_ = now;
    log_.info("{}", format_progress(p));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Log& log_;
  std::string what_;
  std::int64_t total_;
  std::atomic<std::int64_t> done_ = 0;
  std::int64_t done_then_ = 0;
  double rate_ = 0;
  Clock::time_point measured_ = Clock::now(), said_ = measured_;
};

/// Downloads of files by several threads. The first error ends all of them.
class ParallelDownloads {
 public:
  struct Job {
    const FetchOptions& options;
    const HubCache& cache;
    const HubName& name;
    const std::string& commit;
    const std::vector<RepoFile>& files;
  };
  ParallelDownloads(Job job, FetchProgress& progress) : job_(job), progress_(progress) {}
  ~ParallelDownloads() {
    failed_ = true;
    join();
  }
  ParallelDownloads(const ParallelDownloads&) = delete;
  ParallelDownloads& operator=(const ParallelDownloads&) = delete;

  void run() {
    constexpr std::chrono::milliseconds kShow{100};
    const std::size_t threads =
        std::min<std::size_t>(job_.files.size(), static_cast<std::size_t>(job_.options.connections));
    running_ = threads;
    try {
      for (std::size_t i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // no more threads can be started: those that run do the work
      if (workers_.empty()) throw;
      const std::lock_guard lock(mutex_);
      running_ -= threads - workers_.size();
    }
    for (std::unique_lock lock(mutex_); running_ > 0;) {
      ended_.wait_for(lock, kShow);
      progress_.show();
    }
    join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void work() {
    try {
      HttpClient client;
      for (std::size_t i = next_++; i < job_.files.size() && !failed_; i = next_++)
        download_blob(client, job_.cache,
                      {.hub = job_.options.hub,
                       .name = job_.name,
                       .commit = job_.commit,
                       .file = job_.files[i],
                       .rules = job_.options.rules,
                       .advance = [this](std::int64_t bytes) {
                         progress_.add(bytes);
                         return !failed_;
                       }});
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failed_) error_ = std::current_exception();
      failed_ = true;
    }
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  void join() {
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  Job job_;
  FetchProgress& progress_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
};

/// A file like those that git repositories name their branches with. Unchanged if it says so already: the cache may be
/// read-only.
void write_ref(const HubCache& cache, const HubName& name, const std::string& commit) {
  if (name.revision == commit) return;
  const fs::path ref = cache.folder_of(name) / "refs" / name.revision;
  std::error_code ignored;
  if (fs::is_regular_file(ref, ignored) && read_text(ref) == commit) return;
  write_cache_file(ref, commit);
}

}  // namespace

HubFetcher::HubFetcher(FetchOptions options, Log& log)
    : options_(std::move(options)), cache_(options_.hub.cache), log_(log) {
  if (!options_.rules.say) options_.rules.say = [&log](const std::string& text) { log.info("{}", text); };
}

RepoListing HubFetcher::list(const HubName& name) {
  if (is_commit(name.revision))
    if (auto known = read_tree(cache_, name, name.revision)) return *known;
  if (options_.hub.offline)
    fail(ErrorKind::input, {.cause = cache_.why_missing(name) + ", and HF_HUB_OFFLINE forbids to fetch it",
                            .place = name.text(),
                            .remedy = "unset HF_HUB_OFFLINE, or name a folder"});
  if (!name.has_owner() && !cache_.commit_of(name))
    fail(ErrorKind::input, {.cause = "the name has no owner", .place = name.text(), .remedy = "write OWNER/NAME"});
  HttpClient client;
  RepoListing listing = list_repo(client, options_.hub, name, options_.rules);
  if (!listing.moved_to.empty()) log_.warn("{} is now called {}", name.repo, listing.moved_to);
  return listing;
}

void HubFetcher::download(const HubName& name, const RepoListing& listing, const std::vector<RepoFile>& files) {
  std::vector<RepoFile> missing;
  for (const RepoFile& file : files)
    if (!is_fetched(cache_, name, listing.commit, file.path)) missing.push_back(file);
  // Large files first, so that the last one does not begin when all others are done.
  std::ranges::stable_sort(missing, std::greater<>(), &RepoFile::size);
  if (!missing.empty()) {
    if (options_.hub.offline)
      fail(ErrorKind::input,
           {.cause = fmt::format("{} {} not in the cache, and HF_HUB_OFFLINE forbids to fetch {}", names_of(missing),
                                 missing.size() == 1 ? "is" : "are", missing.size() == 1 ? "it" : "them"),
            .place = name.text(),
            .remedy = "unset HF_HUB_OFFLINE, or name a folder"});
    const ToFetch to_fetch = count_missing(cache_.folder_of(name) / "blobs", missing);
    require_space(cache_.folder(), to_fetch.bytes);
    if (to_fetch.files > 0)
      log_.info("fetching {} of {} ({}) to {}", counted(to_fetch.files, "file"), name.text(),
                size_text(static_cast<double>(to_fetch.bytes)), cache_.folder().string());
    FetchProgress progress(log_, name.repo, to_fetch.total);
    ParallelDownloads({options_, cache_, name, listing.commit, missing}, progress).run();
  }
}

HubPlace HubFetcher::fetch(const HubName& name, const RepoListing& listing, const std::vector<RepoFile>& files) {
  const bool complete = std::ranges::all_of(
      files, [&](const RepoFile& file) { return is_fetched(cache_, name, listing.commit, file.path); });
  try {
    write_tree(cache_, name, listing);  // first, so that an interrupted download is known to be incomplete
  } catch (const Error&) {              // a cache that is complete may be read-only
    if (!complete) throw;
  }
  download(name, listing, files);
  HubPlace place{.name = name, .commit = listing.commit, .path = cache_.snapshot_folder(name, listing.commit)};
  create_folders(place.path);
  write_ref(cache_, name, listing.commit);
  if (!name.quant.empty() || !name.file.empty()) {
    const auto found = cache_.find(name);
    if (found) place.path = found->path;
  }
  return place;
}

namespace {

/// A snapshot that another program has made, and whose files cannot be compared with those of the repository: offline
/// that is all there is, and a hub that does not answer must not stop a run that has its files.
std::optional<HubPlace> unlisted_place(HubFetcher& fetcher, const HubName& name, ModelFiles files,
                                       std::optional<RepoListing>& listing) {
  const auto place = fetcher.cache().find(name);
  const bool is_file = !name.quant.empty() || !name.file.empty();
  if (place && is_file && place->path.filename().string().find("-of-") == std::string::npos) return place;
  if (fetcher.offline()) return place;  // reading it says what is missing
  HubName at = name;
  at.revision = *fetcher.cache().commit_of(name);
  try {
    listing = fetcher.list(at);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input || !place || (!is_file && !has_needed_files(place->path, files))) throw;
    fetcher.log().warn("{}: the files in {} are used without knowing whether all are there ({})", name.text(),
                       place->path.string(), e.text().cause);
    return place;
  }
  return {};
}

}  // namespace

HubPlace fetch_model(HubFetcher& fetcher, const HubName& name, ModelFiles files) {
  const HubCache& cache = fetcher.cache();
  const auto commit = cache.commit_of(name);
  std::optional<RepoListing> listing;
  if (commit) {
    listing = read_tree(cache, name, *commit);
    if (!listing)
      if (auto place = unlisted_place(fetcher, name, files, listing)) return *place;
  }
  if (!listing) listing = fetcher.list(name);
  std::vector<RepoFile> needed = needed_files(*listing, name, files);
  if (const RepoFile* index = needed_index(*listing, name, files)) {
    if (!is_fetched(cache, name, listing->commit, index->path)) {
      write_tree(cache, name, *listing);
      fetcher.download(name, *listing, {*index});
    }
    needed = needed_files(*listing, name, files, parts_in_index(cache.snapshot_folder(name, listing->commit)));
  }
  return fetcher.fetch(name, *listing, needed);
}

std::optional<RepoListing> read_tree(const HubCache& cache, const HubName& name, const std::string& commit) {
  const fs::path file = cache.folder_of(name) / "trees" / (commit + ".json");
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  ListedFiles files(file.string());
  try {
    const Json tree = read_json(file, {.max_bytes = std::uint64_t{1} << 27, .max_values = std::uint64_t{1} << 22});
    if (!tree.is_object() || tree.value("format_version", Json()) != 1 || !tree.value("files", Json()).is_object())
      return {};
    for (const auto& [path, known] : tree["files"].items()) {
      if (!known.is_object()) return {};
      Json entry{
          {"rfilename", path}, {"size", known.value("size", Json())}, {"blobId", known.value("blob_id", Json())}};
      if (known.contains("lfs_sha256"))
        entry["lfs"] = {{"sha256", known["lfs_sha256"]}, {"size", known.value("lfs_size", Json())}};
      files.add(entry);
    }
    return RepoListing{.commit = commit, .files = files.take()};
  } catch (const Error&) {  // a damaged list is fetched again
    return {};
  }
}

void write_tree(const HubCache& cache, const HubName& name, const RepoListing& listing) {
  const fs::path file = cache.folder_of(name) / "trees" / (listing.commit + ".json");
  if (read_tree(cache, name, listing.commit)) return;
  JsonObject files;
  files.reserve(listing.files.size());
  for (const RepoFile& one : listing.files) {
    Json entry{{"size", one.size}, {"blob_id", one.git_sha1}};
    if (!one.sha256.empty()) entry.update({{"lfs_sha256", one.sha256}, {"lfs_size", one.size}});
    files.add(one.path, std::move(entry));
  }
  write_cache_file(file, dump_json(Json{{"format_version", 1}, {"files", files.take()}}, 1));
}

}  // namespace qtrain
