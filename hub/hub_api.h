#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/formats/json.h"
#include "hub/environment.h"
#include "hub/http_client.h"
#include "hub/name.h"

namespace qtrain {

/// A file of a repository, as the hub describes it.
struct RepoFile {
  std::string path;
  std::uint64_t size = 0;
  std::string git_sha1 = {};  ///< of the git object; for a large file, that of its pointer
  std::string sha256 = {};    ///< of the contents of a large file; empty for others
  /// The name of its contents in the cache.
  const std::string& etag() const { return sha256.empty() ? git_sha1 : sha256; }
};

struct RepoListing {
  std::string commit;
  std::vector<RepoFile> files;  ///< sorted by path
  std::string moved_to = {};    ///< the present id of a repository that was renamed

  /// Null if there is no such file.
  const RepoFile* find(std::string_view path) const;
};

/// How often and how fast failed requests are sent again.
struct RetryRules {
  int attempts = 5;  ///< without progress
  std::chrono::milliseconds pause{1000}, longest_pause{30000};
  std::function<void(const std::string&)> say = {};  ///< called before a wait, or if the hub takes long to answer
};

/// A text in an object; empty if it is not there, or `object` is none.
std::string text_at(const Json& object, const char* member);
/// Whether a request may succeed later: the connection broke, or the server is busy.
bool is_passing(const HttpReply& reply);
/// Waits before attempt number `attempt` (from 1): the pause doubles, or is what the server asks for. Throws
/// ErrorKind::stopped if a stop is requested.
void wait_before_retry(const RetryRules& rules, int attempt, const HttpReply& reply);
/// What the hub says about an error, for people: " (\"...\")", or nothing.
std::string said_by(const HttpReply& reply, const std::string& token);
/// The error for a request about a repository that failed; says what to do.
Error refused_request(const HubEnvironment& hub, const HubName& name, const HttpReply& reply);

/// Asks the hub which commit a revision is, and which files it has. Files are left out whose names could lead out of a
/// folder, or that lack a size or hash. Throws ErrorKind::input as refused_request does, also if the revision is a
/// commit and the hub answers with another one.
RepoListing list_repo(HttpClient& client, const HubEnvironment& hub, const HubName& name, const RetryRules& rules);

/// Collects the files of a listing one by one, because their descriptions in JSON take many times their memory.
class ListedFiles {
 public:
  explicit ListedFiles(std::string place) : place_(std::move(place)) {}
  /// Adds a file, unless it cannot be fetched safely.
  void add(const Json& entry);
  /// Sorted by path; of several files with one path, the first. Throws ErrorKind::input if there are too many.
  std::vector<RepoFile> take();

 private:
  std::string place_;
  std::vector<RepoFile> files_;
  std::size_t entries_ = 0;
};
/// The members of an answer about a repository other than its files, which are added to `files`; null if it is no JSON.
Json read_about(std::string_view answer, ListedFiles& files);
/// Reads such an answer; `moved_to` is the id in it. Throws ErrorKind::input for one that is not of a hub.
RepoListing read_listing(std::string_view answer, const std::string& place);

/// The address of a file at a commit.
std::string file_url(const HubEnvironment& hub, const HubName& name, const std::string& commit,
                     const std::string& file);

}  // namespace qtrain
