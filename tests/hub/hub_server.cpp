#include "tests/hub/hub_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/sha1.h"
#include "core/sha256.h"

namespace qtrain::test {
namespace {

std::string reason_line(int status) {
  return fmt::format("HTTP/1.1 {} Status\r\nConnection: close\r\n", status);
}

std::string with_length(int status, const std::string& headers, const std::string& body) {
  return http_answer(status, headers, body);
}

/// Reads until `text` is `size` bytes long; false if the connection ends before.
bool read_until(int socket, std::string& text, std::size_t size) {
  char piece[4096];
  while (text.size() < size) {
    const ssize_t n = ::recv(socket, piece, std::min(sizeof piece, size - text.size()), 0);
    if (n <= 0) return false;
    text.append(piece, static_cast<std::size_t>(n));
  }
  return true;
}

std::optional<ServedRequest> read_head(int socket) {
  std::string text;
  while (!text.ends_with("\r\n\r\n"))
    if (!read_until(socket, text, text.size() + 1)) return {};
  ServedRequest request;
  const std::size_t space = text.find(' ');
  request.method = text.substr(0, space);
  request.path = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
  for (std::size_t at = text.find("\r\n") + 2; text.compare(at, 2, "\r\n") != 0;) {
    const std::size_t end = text.find("\r\n", at), colon = text.find(':', at);
    std::string name = text.substr(at, colon - at);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers[name] = text.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  return request;
}

std::size_t body_size(const ServedRequest& request) {
  const auto length = request.headers.find("content-length");
  return length == request.headers.end() ? 0 : static_cast<std::size_t>(std::atoll(length->second.c_str()));
}

void send_all(int socket, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace

std::string http_answer(int status, const std::string& headers, const std::string& body) {
  return fmt::format("{}{}Content-Length: {}\r\n\r\n{}", reason_line(status), headers, body.size(), body);
}

HubServer::Files repository_of(const std::filesystem::path& folder) {
  HubServer::Files files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file())
      files[entry.path().filename().string()] = {.contents = read_text(entry.path()),
                                                 .large = entry.path().extension() == ".safetensors"};
  return files;
}

std::string git_blob_sha1(const std::string& contents) {
  Sha1 hash;
  hash.add(fmt::format("blob {}", contents.size()));
  hash.add(std::string_view("\0", 1));
  hash.add(contents);
  return hash.hex();
}

HubServer::HubServer() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
  ::listen(listener_, 64);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { listen(); });
}

HubServer::~HubServer() {
  ends_ = true;
  accepting_.join();
  for (std::thread& thread : serving_) thread.join();
  ::close(listener_);
}

std::string HubServer::url() const {
  return fmt::format("http://127.0.0.1:{}", port_);
}

std::string HubServer::add(const std::string& repo, Files files, const std::string& revision) {
  Sha1 hash;
  hash.add(repo + revision);
  for (const auto& [path, file] : files) hash.add(path + file.contents);
  const std::string commit = hash.hex();
  const std::lock_guard lock(mutex_);
  for (const std::string& name : {revision, commit})
    repos_[repo + "@" + name] = {.id = repo.substr(repo.find('/') + 1), .commit = commit, .files = files};
  return commit;
}

void HubServer::rename(const std::string& from, const std::string& to) {
  renamed_[from] = to;
}

std::vector<ServedRequest> HubServer::requests() {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int HubServer::count(const std::string& part) {
  const auto all = requests();
  return static_cast<int>(
      std::ranges::count_if(all, [&](const ServedRequest& r) { return r.path.find(part) != r.path.npos; }));
}

void HubServer::listen() {
  while (!ends_) {
    pollfd ready{.fd = listener_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 20) <= 0) continue;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) serving_.emplace_back([this, socket] { serve(socket); });
  }
}

void HubServer::serve(int socket) {
  if (auto request = read_head(socket)) {
    std::size_t end = std::string::npos;
    std::string bytes;
    std::optional<HubFault> fault;
    std::size_t index = 0;
    {
      const std::lock_guard lock(mutex_);
      index = requests_.size();
      requests_.push_back(*request);
      fault = fault_ ? fault_(*request) : std::nullopt;
    }
    const std::size_t size = body_size(*request);
    const bool ends = fault && fault->end_after;
    if (read_until(socket, request->body, ends ? std::min(size, *fault->end_after) : size) && !ends) {
      const std::lock_guard lock(mutex_);
      requests_[index].body = request->body;
      bytes = answer_to(*request, fault, end);
      if (!fault || !fault->end_unanswered) send_all(socket, bytes.substr(0, end));
    }
  }
  ::close(socket);
}

std::string HubServer::answer_to(const ServedRequest& request, const std::optional<HubFault>& fault, std::size_t& end) {
  if (fault && fault->status != 0) return with_length(fault->status, fault->headers, fault->body);
  const std::string path = request.path.substr(0, request.path.find('?'));
  for (const auto& [from, to] : renamed_)
    if (const std::size_t at = path.find("/" + from + "/"); at != path.npos)
      return with_length(
          307, fmt::format("Location: {}/{}{}\r\n", path.substr(0, at), to, path.substr(at + from.size() + 1)), "");
  if (const auto answer = answer_push(request)) return *answer;
  if (path.starts_with("/api/")) return answer_info(path);
  const File* file = file_at(path);
  if (!file) return with_length(404, "X-Error-Code: EntryNotFound\r\n", "");
  if (file->large && !cdn_.empty() && !path.starts_with("/cdn/"))
    return with_length(302, fmt::format("Location: {}/cdn/{}?signature=x\r\n", cdn_, sha256_of(file->contents)), "");
  const std::string& contents = fault && fault->contents ? *fault->contents : file->contents;
  std::size_t begin = 0;
  if (const auto range = request.headers.find("range");
      range != request.headers.end() && !(fault && fault->ignore_range))
    begin = static_cast<std::size_t>(std::atoll(range->second.substr(6).c_str()));
  if (begin >= contents.size() && begin > 0) return with_length(416, "", "");
  const std::string head =
      begin > 0 ? fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, contents.size() - 1, contents.size()) : "";
  std::string bytes = with_length(begin > 0 ? 206 : 200, head + (fault ? fault->headers : ""), contents.substr(begin));
  if (fault && fault->break_after) end = bytes.find("\r\n\r\n") + 4 + *fault->break_after;
  return bytes;
}

std::string HubServer::answer_info(const std::string& path) {
  const std::size_t at = path.find("/revision/");
  const std::string name = path.substr(5, at == path.npos ? path.npos : at - 5);
  std::string revision = at == path.npos ? "main" : path.substr(at + 10);
  for (std::size_t slash = 0; (slash = revision.find("%2F")) != revision.npos;) revision.replace(slash, 3, "/");
  const auto repo = repos_.find(name + "@" + revision);
  if (repo != repos_.end()) return with_length(200, "Content-Type: application/json\r\n", listing(repo->second));
  const bool known = std::ranges::any_of(repos_, [&](const auto& one) { return one.first.starts_with(name + "@"); });
  if (known) return with_length(404, "X-Error-Code: RevisionNotFound\r\n", "{\"error\": \"no\"}");
  return with_length(uploads_.token.empty() ? 401 : 404, "", "{\"error\": \"no\"}");
}

std::string HubServer::listing(const Repo& repo) const {
  Json files = Json::array();
  for (const auto& [path, file] : repo.files) {
    const std::uint64_t size = file.claimed_size.value_or(file.contents.size());
    Json entry{{"rfilename", path}, {"blobId", git_blob_sha1(file.contents)}, {"size", size}};
    if (file.large) entry["lfs"] = {{"sha256", sha256_of(file.contents)}, {"size", size}, {"pointerSize", 130}};
    files.push_back(std::move(entry));
  }
  Json about{{"id", repo.id}, {"sha", repo.commit}, {"siblings", std::move(files)}};
  if (uploads_.tells_visibility) about["private"] = repo.is_private;
  return about.dump();
}

const HubServer::File* HubServer::file_at(const std::string& path) const {
  if (path.starts_with("/cdn/")) {
    for (const auto& [name, repo] : repos_)
      for (const auto& [file_path, file] : repo.files)
        if (sha256_of(file.contents) == path.substr(5)) return &file;
    return nullptr;
  }
  const std::size_t at = path.find("/resolve/");
  if (at == path.npos) return nullptr;
  const std::string repo = path.starts_with("/datasets/") ? path.substr(1, at - 1) : "models" + path.substr(0, at);
  const std::string rest = path.substr(at + 9), commit = rest.substr(0, rest.find('/'));
  const auto found = repos_.find(repo + "@" + commit);
  if (found == repos_.end()) return nullptr;
  const auto file = found->second.files.find(rest.substr(std::min(rest.size(), commit.size() + 1)));
  return file == found->second.files.end() ? nullptr : &file->second;
}

}  // namespace qtrain::test
