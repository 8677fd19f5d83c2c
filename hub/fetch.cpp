#include "hub/fetch.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <limits>
#include <set>
#include <system_error>

#include "core/formats/json_object.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "hub/parallel_transfers.h"
#include "hub/transfer_progress.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

void require_space(const fs::path& folder, std::uint64_t bytes) {
  fs::path there = absolute_path(folder);
  std::error_code ignored;
  while (!fs::exists(there, ignored) && there != there.parent_path()) there = there.parent_path();
  struct statvfs info {};
  if (::statvfs(there.c_str(), &info) != 0) return;
  const std::uint64_t free = static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
  if (bytes > free)
    fail(ErrorKind::disk,
         {.cause = fmt::format("{} are to be fetched, but only {} are free", size_text(bytes), size_text(free)),
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
    fail(ErrorKind::input, {.cause = cache_.why_missing(name) + ", and HF_HUB_OFFLINE forbids fetching it",
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
           {.cause = fmt::format("{} {} not in the cache, and HF_HUB_OFFLINE forbids fetching {}", names_of(missing),
                                 missing.size() == 1 ? "is" : "are", missing.size() == 1 ? "it" : "them"),
            .place = name.text(),
            .remedy = "unset HF_HUB_OFFLINE, or name a folder"});
    const ToFetch to_fetch = count_missing(cache_.folder_of(name) / "blobs", missing);
    require_space(cache_.folder(), to_fetch.bytes);
    if (to_fetch.files > 0)
      log_.info("fetching {} of {} ({}) to {}", counted(to_fetch.files, "file"), name.text(), size_text(to_fetch.bytes),
                cache_.folder().string());
    TransferProgress progress(log_, "fetching " + name.repo, to_fetch.total);
    run_transfers({.count = missing.size(),
                   .connections = options_.connections,
                   .progress = progress,
                   .transfer = [&](HttpClient& client, std::size_t i, const Advance& advance) {
                     download_blob(client, cache_,
                                   {.hub = options_.hub,
                                    .name = name,
                                    .commit = listing.commit,
                                    .file = missing[i],
                                    .rules = options_.rules,
                                    .advance = advance});
                   }});
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
