#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "hub/upload_api.h"

namespace qtrain {

/// A file to push: one on disk, or a text that was made for it.
struct PushedFile {
  std::string path;              ///< in the repository
  std::filesystem::path source;  ///< empty: `text` is its contents
  std::string text = {};
  bool only_if_missing = false;      ///< leave the one that the repository has
  std::string required_sha256 = {};  ///< that something else says about it; empty: any
};

struct PushJob {
  HubEnvironment hub = hub_environment();
  RetryRules rules = {};
  int connections = 4;
  HubName name;            ///< without an owner: the account of the token
  std::string token = {};  ///< empty: the one of the environment
  std::vector<PushedFile> files;
  std::string message = "Upload with qtrain";
  std::optional<bool> is_private =
      {};                ///< whether the repository has to be private; empty: as it is, or as the hub decides
  bool dry_run = false;  ///< change nothing on the hub
  std::filesystem::path records = {};  ///< folder for UploadRecords
};

/// What becomes of a file.
enum class PushedAs : std::uint8_t { added, changed, unchanged, ignored };
std::string_view name_of(PushedAs as);

struct PushResult {
  struct File {
    std::string path;
    std::uint64_t size = 0;
    PushedAs as = PushedAs::added;
  };
  HubName name;
  std::string page;
  std::string commit;       ///< that has the files; empty if there is none yet
  bool is_new = false;      ///< the repository was, or with dry_run would be, created
  bool has_commit = false;  ///< this push has made a commit
  std::vector<File> files = {};
  std::vector<std::string> stale_weights = {};  ///< weights in the repository that are not among the files
};

/// Uploads those files that differ from the repository's, as one commit. Whatever breaks it off, another call goes on.
/// Throws ErrorKind::input, with what to do, ErrorKind::stopped after a signal.
PushResult push(const PushJob& job, Log& log);

/// The name with its owner, for which the hub may have to be asked. Throws as push does.
HubName name_with_owner(const PushJob& job, Log& log);

/// Finds out before a long run whether its result can be pushed: creates the repository and the branch, and asks how to
/// upload a file, for which the hub wants a token that may write. Throws as push does. Returns the name with its owner.
HubName prepare_push(const PushJob& job, Log& log);

}  // namespace qtrain
