#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
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
  std::string body = {};
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
  std::optional<std::size_t> end_after = {};  ///< bytes of the request's body after which the connection ends
  bool end_unanswered = false;                ///< does what is asked for, and ends the connection without an answer
};

/// A server on loopback that speaks a hub's API: lists of files, files and ranges of them, redirects of large files;
/// new repositories and branches, large files in one or several parts, commits.
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
  /// How the server takes files that are pushed. Large ones are those of LFS (*.safetensors, *.gguf), and go to another
  /// host.
  struct Uploads {
    std::string token = {};         ///< that every request to the hub needs; empty: none
    std::string reader = {};        ///< another token, which may not write
    bool is_open = false;           ///< repositories can be read without a token
    bool verifies = true;           ///< names an address for `verify`
    bool tells_visibility = true;   ///< of a repository
    std::size_t chunk_size = 1000;  ///< larger files go in parts
    std::string ignored = {};       ///< a path that .gitignore excludes
    bool knows_visibility = true;   ///< false: new repositories are always public
  };
  void set_uploads(Uploads uploads) { uploads_ = std::move(uploads); }
  /// Forgets parts that have not been joined: their addresses are refused from then on.
  void expire_parts();
  /// The files of a repository and revision, such as "models/o/n@main".
  Files files_of(const std::string& repo);
  std::string commit_of(const std::string& repo);
  bool is_private(const std::string& repo);
  /// Bytes of large files that have arrived, also those in parts that were not used.
  std::size_t received() { return received_; }
  std::vector<ServedRequest> requests();
  /// How many requests asked for a path that contains the text.
  int count(const std::string& part);

 private:
  struct Repo {
    std::string id, commit;
    Files files;
    bool is_private = false;
  };
  /// An upload in parts.
  struct Parts {
    std::string sha256;
    std::map<int, std::string> received;
  };
  void listen();
  void serve(int socket);
  std::string answer_to(const ServedRequest& request, const std::optional<HubFault>& fault, std::size_t& end);
  std::string answer_info(const std::string& path);
  /// None if the request is not about pushing.
  std::optional<std::string> answer_push(const ServedRequest& request);
  std::string create(const ServedRequest& request);
  std::string offer(const ServedRequest& request);
  std::string batch(const ServedRequest& request);
  std::string join(const ServedRequest& request);
  std::string take_part(const ServedRequest& request);
  std::string commit(const ServedRequest& request);
  std::string listing(const Repo& repo) const;
  const File* file_at(const std::string& path) const;

  int listener_ = -1;
  int port_ = 0;
  std::string cdn_;
  std::function<std::optional<HubFault>(const ServedRequest&)> fault_;
  std::map<std::string, Repo> repos_;  ///< by "models/o/n@revision"
  std::map<std::string, std::string> renamed_;
  Uploads uploads_;
  std::map<std::string, std::string> large_;  ///< by SHA-256
  std::map<std::string, Parts> parts_;        ///< by the number of the upload
  int last_upload_ = 0;
  std::atomic<std::size_t> received_ = 0;
  std::mutex mutex_;
  std::vector<ServedRequest> requests_;
  std::atomic<bool> ends_ = false;
  std::thread accepting_;
  std::vector<std::thread> serving_;
};

/// The files of a folder as a repository has them: *.safetensors are large ones.
HubServer::Files repository_of(const std::filesystem::path& folder);

/// An answer with a body, whose headers end in line ends.
std::string http_answer(int status, const std::string& headers, const std::string& body);

/// Names of contents as a hub gives them.
std::string git_blob_sha1(const std::string& contents);

}  // namespace qtrain::test
