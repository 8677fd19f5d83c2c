#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "core/log.h"
#include "hub/blob_download.h"
#include "hub/cache.h"
#include "hub/needed_files.h"

namespace qtrain {

struct FetchOptions {
  HubEnvironment hub = hub_environment();
  RetryRules rules = {};
  int connections = 4;  ///< files that are fetched at the same time
};

/// Fetches files of repositories to the cache. Errors: ErrorKind::input, with what to do; ErrorKind::disk, also if the
/// disk has too little space.
class HubFetcher {
 public:
  HubFetcher(FetchOptions options, Log& log);

  /// The files of a repository at a revision: as an earlier call has stored them, for a commit; else from the hub.
  /// Throws ErrorKind::input with HF_HUB_OFFLINE.
  RepoListing list(const HubName& name);

  /// Fetches those of the files that the cache lacks.
  void download(const HubName& name, const RepoListing& listing, const std::vector<RepoFile>& files);
  /// The same, and stores the list of files and which commit the revision is. Returns the snapshot.
  HubPlace fetch(const HubName& name, const RepoListing& listing, const std::vector<RepoFile>& files);

  const HubCache& cache() const { return cache_; }
  bool offline() const { return options_.hub.offline; }
  Log& log() const { return log_; }

 private:
  FetchOptions options_;
  HubCache cache_;
  Log& log_;
};

/// What a model's name means, after fetching what is missing. Without a hub if the cache has a list of the repository's
/// files and all needed ones; a snapshot without a list is checked against the hub's, unless the hub does not answer.
HubPlace fetch_model(HubFetcher& fetcher, const HubName& name, ModelFiles files);

/// Reads and writes the list of files that huggingface_hub keeps for each commit, trees/COMMIT.json.
std::optional<RepoListing> read_tree(const HubCache& cache, const HubName& name, const std::string& commit);
void write_tree(const HubCache& cache, const HubName& name, const RepoListing& listing);

}  // namespace qtrain
