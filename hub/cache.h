#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "hub/name.h"

namespace qtrain {

/// A name of the hub that is on this machine.
struct HubPlace {
  HubName name;
  std::string commit;
  std::filesystem::path path;  ///< the folder of the snapshot, or what the name selects in it
};

/// The cache that huggingface_hub keeps on disk: for each repository a folder models--OWNER--NAME or
/// datasets--OWNER--NAME with refs/REVISION (a commit), snapshots/COMMIT/FILE (links) and blobs/ETAG (their contents).
class HubCache {
 public:
  explicit HubCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path folder_of(const HubName& name) const;
  std::filesystem::path snapshot_folder(const HubName& name, const std::string& commit) const;

  /// The commit of a revision: what refs/REVISION says, else the snapshot of that commit, else the only one whose
  /// commit begins so. None if no snapshot of it is there. Throws ErrorKind::input if refs/REVISION is no commit.
  std::optional<std::string> commit_of(const HubName& name) const;
  /// None if the snapshot, or the file in it, is not there. Throws ErrorKind::input if several GGUF files match.
  std::optional<HubPlace> find(const HubName& name) const;

  /// Why `find` found nothing: what is missing, where it was looked for, and which revisions are there.
  std::string why_missing(const HubName& name) const;

 private:
  std::vector<std::string> snapshots_of(const HubName& name) const;

  std::filesystem::path folder_;
};

/// Writes a small file of a cache. Throws ErrorKind::disk, also if there is something of that name that is not a file:
/// a link could lead out of the cache, and somebody would have to read from a FIFO.
void write_cache_file(const std::filesystem::path& file, std::string_view contents);

/// The GGUF files among these paths whose names have this type ("model-Q4_K_M.gguf"): one, or all parts of one. Throws
/// ErrorKind::input if several match.
std::vector<std::string> gguf_paths(const std::vector<std::string>& paths, const std::string& quant);

/// The GGUF file in a folder, or a folder below it, whose name has this type: "model-Q4_K_M.gguf"; the first
/// file of a model in several. None if there is none. Throws ErrorKind::input if several match.
std::optional<std::filesystem::path> gguf_file_in(const std::filesystem::path& folder, const std::string& quant);

/// The id of the repository ("owner/name") whose snapshot in a cache this folder is; none for other folders.
std::optional<std::string> repo_of_snapshot(const std::filesystem::path& folder);

}  // namespace qtrain
