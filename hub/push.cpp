#include "hub/push.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/formats/weight_files.h"
#include "core/plural.h"
#include "hub/large_upload.h"
#include "hub/local_contents.h"
#include "hub/transfer_progress.h"

namespace qtrain {
namespace {

constexpr int kConflictStatus = 409, kMovedStatus = 412;

/// A file with what a comparison with the repository needs.
struct LocalFile {
  const PushedFile* file = nullptr;
  std::uint64_t size = 0;
  std::string sha256 = {};
  LocalContents::Stamp stamp = {};
  PushedAs as = PushedAs::added;
  std::optional<PushedAs> sent_as = {};  ///< in a commit whose answer may have been lost
};

LocalContents contents_of(const PushedFile& file) {
  return file.source.empty() ? LocalContents::of_text(file.text) : LocalContents(file.source);
}

/// The contents that were hashed.
LocalContents contents_of(const LocalFile& local) {
  LocalContents contents = contents_of(*local.file);
  contents.require_unchanged(local.stamp);
  return contents;
}

LocalFile hashed(const PushedFile& file) {
  const LocalContents contents = contents_of(file);
  LocalFile local{.file = &file, .size = contents.size(), .sha256 = {}, .stamp = contents.stamp()};
  local.sha256 = sha256_of(contents);
  contents.require_unchanged(local.stamp);
  if (!file.required_sha256.empty() && local.sha256 != file.required_sha256)
    fail(ErrorKind::input,
         {.cause = "does not have the hash that manifest.json says: it may be damaged, or of another run",
          .place = file.source.string(),
          .remedy = "qtrain inspect --verify shows what differs; a finished run writes all files again"});
  return local;
}

bool is_same(const LocalFile& local, const RepoFile& remote) {
  if (local.size != remote.size) return false;
  return remote.sha256.empty() ? git_sha1_of(contents_of(local)) == remote.git_sha1 : local.sha256 == remote.sha256;
}

/// A push while it goes on.
class Push {
 public:
  Push(const PushJob& job, Log& log) : job_(job), log_(log) {
    place_.hub = job.hub;
    place_.name = job.name;
    place_.token = job.token.empty() ? hub_token(job.hub) : job.token;
    place_.rules = job.rules;
    if (!place_.rules.say) place_.rules.say = [&log](const std::string& text) { log.info("{}", text); };
    if (job.hub.offline)
      fail(ErrorKind::usage, {.cause = "HF_HUB_OFFLINE forbids pushing",
                              .place = job.name.text(),
                              .remedy = "unset HF_HUB_OFFLINE, or push later: qtrain push DIR OWNER/NAME"});
    if (is_commit(job.name.revision))
      fail(ErrorKind::usage,
           {.cause = "a commit cannot be changed", .place = job.name.text(), .remedy = "name a branch"});
  }

  PushResult run() {
    name_owner();
    hash_files();
    check_card();
    for (int attempt = 1;; ++attempt) {
      const RemoteRepo repo = ready_repo();
      compare(repo.listing);
      PushResult result = result_with(repo);
      if (job_.dry_run || std::ranges::none_of(local_, differs)) return result;
      const auto reply_or_none = commit(repo, result);
      if (!reply_or_none) return result;
      const HttpReply& reply = *reply_or_none;
      result.has_commit = is_sent_ = true;
      if (reply.is_success()) {
        result.commit = text_at(json_in(reply.body), "commitOid");
        return result;
      }
      // The branch may have moved, or the commit may have arrived without its answer: then another look tells.
      const bool has_moved = reply.status == kConflictStatus || reply.status == kMovedStatus;
      if ((!has_moved && !is_passing(reply)) || attempt >= place_.rules.attempts) throw refused_push(place_, reply);
      if (!has_moved) wait_before_retry(place_.rules, attempt, reply);
    }
  }

  HubName owned() {
    name_owner();
    return place_.name;
  }

  HubName prepare() {
    name_owner();
    ready_repo();
    // Also who may only read finds the repository. To say how a file has to be uploaded, the hub wants a token that may
    // write, and nothing changes.
    api().modes_of({{.path = "README.md", .size = 1, .sample = "#"}});
    return place_.name;
  }

 private:
  static bool differs(const LocalFile& local) { return local.as == PushedAs::added || local.as == PushedAs::changed; }

  UploadApi api() { return {client_, place_}; }

  void name_owner() {
    if (!place_.name.has_owner()) place_.name.repo = api().account() + "/" + place_.name.repo;
  }

  void hash_files() {
    constexpr std::uint64_t kLarge = std::uint64_t{1} << 30;
    std::uint64_t bytes = 0;
    for (const PushedFile& file : job_.files) bytes += contents_of(file).size();
    if (bytes >= kLarge)
      log_.info("hashing {} ({})", counted(static_cast<std::int64_t>(job_.files.size()), "file"), size_text(bytes));
    for (const PushedFile& file : job_.files) local_.push_back(hashed(file));
  }

  void check_card() {
    for (const PushedFile& file : job_.files)
      if (file.path == "README.md" && !job_.dry_run)
        for (const std::string& warning : api().check_card(contents_of(file).all()))
          log_.warn("README.md: {}", warning);
  }

  /// The repository, created if it is not there.
  RemoteRepo ready_repo() {
    for (int attempt = 1;; ++attempt) {
      RemoteRepo repo = api().look();
      if (!repo.listing.moved_to.empty()) {
        log_.warn("{} is now called {}", place_.name.repo, repo.listing.moved_to);
        place_.name.repo = repo.listing.moved_to;
      }
      if (repo.exists) require_visibility(repo);
      if ((repo.exists && repo.has_branch) || job_.dry_run) return repo;
      if (attempt > place_.rules.attempts) throw refused_push(place_, {.status = 404});
      // A repository that was just created may take a moment to appear.
      if (attempt > 2) wait_before_retry(place_.rules, attempt - 2, {});
      if (repo.exists) {
        api().create_branch();
      } else if (!has_asked_) {
        has_asked_ = true;
        is_created_ = api().create_repo(job_.is_private);
      }
    }
  }

  /// Nothing that was meant to be private is uploaded to a public repository.
  void require_visibility(const RemoteRepo& repo) const {
    if (job_.is_private != true || repo.is_private == true) return;
    fail(ErrorKind::usage,
         {.cause = repo.is_private ? "the repository is public, but a private one is asked for"
                                   : "the hub does not say whether the repository is private, which is asked for",
          .place = place_.name.text(),
          .remedy = fmt::format(
              "make it private on {}/settings, or push without --private (in a config: hub_private_repo: false)",
              place_.page())});
  }

  void compare(const RepoListing& listing) {
    std::map<std::string, const RepoFile*> remote;
    for (const RepoFile& file : listing.files) remote[file.path] = &file;
    for (LocalFile& local : local_) {
      const auto there = remote.find(local.file->path);
      if (local.as == PushedAs::ignored) continue;
      if (there == remote.end())
        local.as = PushedAs::added;
      else
        local.as =
            local.file->only_if_missing || is_same(local, *there->second) ? PushedAs::unchanged : PushedAs::changed;
    }
  }

  PushResult result_with(const RemoteRepo& repo) const {
    PushResult result{.name = place_.name, .page = place_.page(), .commit = repo.listing.commit};
    result.is_new = is_created_ || !repo.exists;
    result.has_commit = is_sent_;
    std::set<std::string> paths;
    for (const LocalFile& local : local_) {
      const PushedAs as = local.as == PushedAs::unchanged ? local.sent_as.value_or(local.as) : local.as;
      result.files.push_back({.path = local.file->path, .size = local.size, .as = as});
      paths.insert(local.file->path);
    }
    for (const RepoFile& file : repo.listing.files)
      if (!paths.contains(file.path) && (is_weight_file(file.path) || file.path == "adapter_model.safetensors"))
        result.stale_weights.push_back(file.path);
    return result;
  }

  /// A commit is made in memory, and takes several times the size of its regular files.
  void require_small(const LocalFile& local, std::uint64_t of_all) const {
    constexpr std::uint64_t kOne = 64'000'000, kAll = 128'000'000;
    if (local.size <= kOne && of_all <= kAll) return;
    const std::filesystem::path path = local.file->path;
    fail(ErrorKind::input,
         {.cause = fmt::format("the hub wants {} in the commit itself, which has room for files of {} and {} in all",
                               path.string(), size_text(kOne), size_text(kAll)),
          .place = place_.name.text(),
          .remedy = fmt::format("let the repository keep it by LFS, with this line in .gitattributes: "
                                "{} filter=lfs diff=lfs merge=lfs -text",
                                path.has_extension() ? "*" + path.extension().string() : path.string())});
  }

  /// Uploads what differs. Returns the answer to the commit; none if the repository ignores all of it.
  std::optional<HttpReply> commit(const RemoteRepo& repo, PushResult& result) {
    std::vector<std::size_t> sent;
    std::vector<OfferedFile> offered;
    for (std::size_t i = 0; i < local_.size(); ++i) {
      if (!differs(local_[i])) continue;
      constexpr std::uint64_t kSample = 512;
      sent.push_back(i);
      offered.push_back({.path = local_[i].file->path,
                         .size = local_[i].size,
                         .sample = contents_of(local_[i]).bytes(0, std::min(kSample, local_[i].size))});
    }
    const std::vector<UploadMode> modes = api().modes_of(offered);
    Commit commit{.message = job_.message, .parent = repo.listing.commit, .files = {}};
    LargeUpload large{.place = place_, .files = {}, .connections = job_.connections, .records = job_.records};
    std::set<std::string> seen;
    std::uint64_t regular_bytes = 0;
    for (std::size_t k = 0; k < sent.size(); ++k) {
      LocalFile& local = local_[sent[k]];
      if (modes[k] == UploadMode::ignored) {
        log_.warn("{} is not pushed: the repository's .gitignore excludes it", local.file->path);
        local.as = result.files[sent[k]].as = PushedAs::ignored;
        continue;
      }
      const bool is_large = modes[k] == UploadMode::large;
      if (!is_large) require_small(local, regular_bytes += local.size);
      commit.files.push_back({.path = local.file->path,
                              .mode = modes[k],
                              .contents = is_large ? "" : contents_of(local).all(),
                              .large = {.sha256 = local.sha256, .size = local.size}});
      if (is_large && seen.insert(local.sha256).second)
        large.files.push_back({.path = local.file->path, .object = commit.files.back().large, .open = [&local] {
                                 return contents_of(local);
                               }});
    }
    if (commit.files.empty()) return {};
    upload_large(large, log_);
    for (const std::size_t i : sent) contents_of(local_[i]);  // throws if one has changed since
    for (const std::size_t i : sent)
      if (differs(local_[i])) local_[i].sent_as = local_[i].as;
    return api().send_commit(commit);
  }

  const PushJob& job_;
  Log& log_;
  UploadPlace place_;
  HttpClient client_;
  std::vector<LocalFile> local_;
  bool has_asked_ = false, is_created_ = false;  ///< for a repository that was missing
  bool is_sent_ = false;
};

}  // namespace

std::string_view name_of(PushedAs as) {
  switch (as) {
    case PushedAs::added: return "new";
    case PushedAs::changed: return "changed";
    case PushedAs::unchanged: return "unchanged";
    case PushedAs::ignored: return "ignored";
  }
  return "";
}

PushResult push(const PushJob& job, Log& log) {
  return Push(job, log).run();
}

HubName name_with_owner(const PushJob& job, Log& log) {
  return Push(job, log).owned();
}

HubName prepare_push(const PushJob& job, Log& log) {
  return Push(job, log).prepare();
}

}  // namespace qtrain
