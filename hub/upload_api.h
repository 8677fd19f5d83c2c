#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "hub/environment.h"
#include "hub/http_client.h"
#include "hub/hub_api.h"
#include "hub/name.h"

namespace qtrain {

/// The repository to which files are pushed. A token is sent to the endpoint of `hub` alone.
struct UploadPlace {
  HubEnvironment hub;
  HubName name;  ///< whose revision is a branch
  std::string token;
  RetryRules rules = {};

  std::string page() const;  ///< for people
};

/// A repository as it is before a commit.
struct RemoteRepo {
  bool exists = false, has_branch = false;
  std::optional<bool> is_private = {};
  RepoListing listing = {};  ///< if it has the branch
};

/// A file as the hub wants to know it before a commit.
struct OfferedFile {
  std::string path;
  std::uint64_t size = 0;
  std::string sample;  ///< the first 512 bytes
};
enum class UploadMode : std::uint8_t {
  regular,  ///< as a part of the commit
  large,    ///< to the storage for large files, before the commit
  ignored,  ///< the repository's .gitignore excludes it
};

struct LargeObject {
  std::string sha256;
  std::uint64_t size = 0;
};
/// Where a large file goes. Without `url` the hub has its contents already.
struct LargeTarget {
  std::string sha256;
  std::uint64_t size = 0;
  std::string url = {};     ///< takes the whole file, or with `parts` the list of their ETags
  std::string verify = {};  ///< is told about a finished upload; may be empty
  std::uint64_t chunk_size = 0;
  std::vector<std::string> parts = {};  ///< the address of each chunk
};

/// A file in a commit.
struct CommittedFile {
  std::string path;
  UploadMode mode = UploadMode::regular;
  std::string contents = {};  ///< of a regular file
  LargeObject large = {};
};
struct Commit {
  std::string message, parent;  ///< the hub refuses the commit if the branch is not at `parent`
  std::vector<CommittedFile> files;
};

/// The requests of a push. All throw ErrorKind::input, with what to do, for answers that they do not expect.
class UploadApi {
 public:
  UploadApi(HttpClient& client, const UploadPlace& place) : client_(client), place_(place) {}

  /// The name of the account to which the token belongs.
  std::string account();
  RemoteRepo look();
  /// Returns false if it was there by now.
  bool create_repo(std::optional<bool> is_private);
  void create_branch();
  /// Throws ErrorKind::usage if the hub refuses the front matter; returns its warnings.
  std::vector<std::string> check_card(const std::string& card);
  /// In the order of the files.
  std::vector<UploadMode> modes_of(const std::vector<OfferedFile>& files);
  std::vector<LargeTarget> targets_of(const std::vector<LargeObject>& objects);
  /// Tells the hub that a large file is there.
  void verify(const LargeTarget& target, const LargeObject& object);
  /// Sent once: whoever calls looks whether a commit has arrived whose answer has not. Returns the answer.
  HttpReply send_commit(const Commit& commit);

  /// Sends a request again while that may help.
  HttpReply ask(const HttpQuery& query);

 private:
  HttpReply post(const std::string& path, const std::string& body, const char* type = "application/json");
  std::string repo_path() const { return "/api/models/" + place_.name.repo; }
  std::string branch() const;

  HttpClient& client_;
  const UploadPlace& place_;
};

/// The error for a request of a push that failed; says what to do.
Error refused_push(const UploadPlace& place, const HttpReply& reply);

}  // namespace qtrain
