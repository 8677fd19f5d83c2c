#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace qtrain::test {

/// A request that the server got; names of headers in lower case.
struct ServedRequest {
  std::string method, path;
  std::map<std::string, std::string> headers = {};
  bool has_token() const { return headers.contains("authorization"); }
};

/// How the server deviates from what a hub does, for one request.
struct HubFault {
  int status = 0;                               ///< instead of the right answer
  std::string headers = {};                     ///< lines that are added
  std::string body = {};                        ///< with `status`
  std::optional<std::size_t> break_after = {};  ///< bytes of the body after which the connection ends
  std::optional<std::string> contents = {};     ///< instead of the file's
  bool ignore_range = false;
};

/// A server on loopback that speaks a hub's API: lists of files, files and ranges of them, redirects of large files.
class HubServer {
 public:
  struct File {
    std::string contents;
    bool large = false;                              ///< kept by LFS, named by SHA-256
    std::optional<std::uint64_t> claimed_size = {};  ///< what the list says
  };
  using Files = std::map<std::string, File>;

  HubServer();
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  std::string url() const;
  /// Puts a repository there, such as "models/o/n"; returns its commit.
  std::string add(const std::string& repo, Files files, const std::string& revision = "main");
  /// Lets requests for one name be redirected to the other.
  void rename(const std::string& from, const std::string& to);

  /// Large files are redirected to this server.
  void redirect_large_files(const std::string& to) { cdn_ = to; }
  /// Decides about the fault of each request, which is called one after the other.
  void fail_with(std::function<std::optional<HubFault>(const ServedRequest&)> fault) { fault_ = std::move(fault); }
  std::vector<ServedRequest> requests();
  /// How many requests asked for a path that contains the text.
  int count(const std::string& part);

 private:
  struct Repo {
    std::string id, commit;
    Files files;
  };
  void listen();
  void serve(int socket);
  std::string answer_to(const ServedRequest& request, std::size_t& end);
  std::string listing(const Repo& repo) const;
  const File* file_at(const std::string& path) const;

  int listener_ = -1;
  int port_ = 0;
  std::string cdn_;
  std::function<std::optional<HubFault>(const ServedRequest&)> fault_;
  std::map<std::string, Repo> repos_;  ///< by "models/o/n@revision"
  std::map<std::string, std::string> renamed_;
  std::mutex mutex_;
  std::vector<ServedRequest> requests_;
  std::atomic<bool> ends_ = false;
  std::thread accepting_;
  std::vector<std::thread> serving_;
};

/// Names of contents as a hub gives them.
std::string git_blob_sha1(const std::string& contents);

}  // namespace qtrain::test
