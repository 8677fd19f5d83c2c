#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
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
  std::vector<RepoFile> files;
  std::string moved_to = {};  ///< the present id of a repository that was renamed
};

/// How often and how fast failed requests are sent again.
struct RetryRules {
  int attempts = 5;  ///< without progress
  std::chrono::milliseconds pause{1000}, longest_pause{30000};
  std::function<void(const std::string&)> say = {};  ///< called before a wait that the hub has asked for
};

/// A text in an object; empty if it is not there, or `object` is none.
std::string text_at(const Json& object, const char* member);
/// Whether a request may succeed later: the connection broke, or the server is busy.
bool is_passing(const HttpReply& reply);
/// Waits before attempt number `attempt` (from 1): the pause doubles, or is what the server asks for. Throws
/// ErrorKind::stopped if a stop is requested.
void wait_before_retry(const RetryRules& rules, int attempt, const HttpReply& reply);
/// What the hub says about an error, for people: " (\"...\")", or nothing.
std::string said_by(const HttpReply& reply);
/// The error for a request about a repository that failed; says what to do.
Error refused_request(const HubEnvironment& hub, const HubName& name, const HttpReply& reply);

/// Asks the hub which commit a revision is, and which files it has. Files are left out whose names could lead out of a
/// folder, or that lack a size or hash. Throws ErrorKind::input as refused_request does.
RepoListing list_repo(HttpClient& client, const HubEnvironment& hub, const HubName& name, const RetryRules& rules);
/// Reads such an answer. Throws ErrorKind::input for one that is not of a hub.
RepoListing read_listing(const Json& answer, const std::string& place);

/// The address of a file at a commit.
std::string file_url(const HubEnvironment& hub, const HubName& name, const std::string& commit,
                     const std::string& file);

}  // namespace qtrain
