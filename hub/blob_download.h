#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "hub/cache.h"
#include "hub/hub_api.h"

namespace qtrain {

/// A file of a repository to put into the cache.
struct BlobRequest {
  const HubEnvironment& hub;
  const HubName& name;
  const std::string& commit;
  const RepoFile& file;
  RetryRules rules = {};
  /// Called with the bytes that have arrived, or, negative, that were thrown away; returns false to give up.
  std::function<bool(std::int64_t bytes)> advance = {};
};

/// Fetches a file to blobs/ETAG, by way of blobs/ETAG.incomplete, which a later call continues, and links it as
/// snapshots/COMMIT/PATH. Holds .locks/REPOSITORY/ETAG.lock meanwhile, as huggingface_hub does. Errors:
/// ErrorKind::input as refused_request, also for contents of another size or hash than the hub says; ErrorKind::disk.
void download_blob(HttpClient& client, const HubCache& cache, const BlobRequest& request);

/// Whether the contents of the file are among the blobs, with the size that the hub says.
bool has_blob(const std::filesystem::path& blobs, const RepoFile& file);
/// Whether the file is in the snapshot.
bool is_fetched(const HubCache& cache, const HubName& name, const std::string& commit, const std::string& file);

}  // namespace qtrain
