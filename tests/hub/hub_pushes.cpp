// What a hub does with files that are pushed.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/formats/json.h"
#include "core/sha1.h"
#include "core/sha256.h"
#include "tests/hub/hub_server.h"

namespace qtrain::test {
namespace {

std::string decoded(const std::string& base64) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int have = 0;
  for (const char c : base64) {
    const std::size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) break;
    bits = bits << 6U | static_cast<std::uint32_t>(digit);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes += static_cast<char>(bits >> static_cast<unsigned>(have) & 255U);
  }
  return bytes;
}

bool is_lfs(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".gguf");
}

std::string json_answer(const Json& json) {
  return http_answer(200, "Content-Type: application/json\r\n", json.dump());
}

std::string with_slashes(std::string path) {
  for (std::size_t at = 0; (at = path.find("%2F")) != path.npos;) path.replace(at, 3, "/");
  return path;
}

/// "models/o/n@main" for "/api/models/o/n/commit/main".
std::string repo_in(const std::string& path, const std::string& action) {
  const std::size_t at = path.find(action);
  return path.substr(5, at - 5) + "@" + path.substr(at + action.size());
}

}  // namespace

void HubServer::expire_parts() {
  const std::lock_guard lock(mutex_);
  parts_.clear();
}

HubServer::Files HubServer::files_of(const std::string& repo) {
  const std::lock_guard lock(mutex_);
  return repos_.at(repo).files;
}

std::string HubServer::commit_of(const std::string& repo) {
  const std::lock_guard lock(mutex_);
  return repos_.at(repo).commit;
}

bool HubServer::is_private(const std::string& repo) {
  const std::lock_guard lock(mutex_);
  return repos_.at(repo).is_private;
}

std::optional<std::string> HubServer::answer_push(const ServedRequest& request) {
  const std::string path = with_slashes(request.path.substr(0, request.path.find('?')));
  if (path.starts_with("/storage/")) return take_part(request);
  if (path.starts_with("/join/")) return join(request);
  const auto token = request.headers.find("authorization");
  const bool is_known = token != request.headers.end() && token->second == "Bearer " + uploads_.token;
  const bool is_reader =
      !uploads_.reader.empty() && token != request.headers.end() && token->second == "Bearer " + uploads_.reader;
  if (is_reader && request.method != "GET" && path != "/api/validate-yaml")
    return http_answer(403, "", R"({"error": "the token has not the role write"})");
  const bool is_read = request.method == "GET" && (is_reader || (uploads_.is_open && path.starts_with("/api/models/")));
  if (!uploads_.token.empty() && !is_known && !is_read && !path.starts_with("/cdn/"))
    return http_answer(401, "", R"({"error": "Invalid credentials in Authorization header"})");
  if (path == "/api/whoami-v2") return json_answer({{"type", "user"}, {"name", "me"}});
  if (request.method != "POST") return {};
  if (path == "/api/repos/create") return create(request);
  if (path == "/api/validate-yaml") return json_answer({{"errors", Json::array()}, {"warnings", Json::array()}});
  if (path.find("/preupload/") != path.npos) return offer(request);
  if (path.ends_with(".git/info/lfs/objects/batch")) return batch(request);
  if (path == "/verify")
    return http_answer(large_.contains(json_in(request.body).value("oid", "")) ? 200 : 404, "", "");
  if (path.find("/commit/") != path.npos) return commit(request);
  if (path.find("/branch/") != path.npos) {
    const std::string repo = repo_in(path, "/branch/");
    if (repos_.contains(repo)) return http_answer(409, "", "");
    repos_[repo] = repos_.at(repo.substr(0, repo.find('@')) + "@main");
    return http_answer(200, "", "");
  }
  return http_answer(404, "", "");
}

std::string HubServer::create(const ServedRequest& request) {
  const Json wanted = json_in(request.body);
  const std::string id = wanted["organization"].get<std::string>() + "/" + wanted["name"].get<std::string>(),
                    repo = "models/" + id + "@main";
  if (repos_.contains(repo)) return http_answer(409, "", R"({"error": "You already created this model repo"})");
  Sha1 hash;
  hash.add("new" + repo);
  repos_[repo] = {.id = id,
                  .commit = hash.hex(),
                  .files = {{".gitattributes", {.contents = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"}}},
                  .is_private = uploads_.knows_visibility && wanted.value("visibility", "") == "private"};
  return json_answer({{"url", url() + "/" + id}, {"name", id}});
}

std::string HubServer::offer(const ServedRequest& request) {
  Json files = Json::array();
  const Json offered = json_in(request.body);
  for (const Json& file : offered["files"]) {
    const std::string path = file["path"];
    files.push_back(
        {{"path", path}, {"uploadMode", is_lfs(path) ? "lfs" : "regular"}, {"shouldIgnore", path == uploads_.ignored}});
  }
  return json_answer({{"files", std::move(files)}});
}

std::string HubServer::batch(const ServedRequest& request) {
  // Another host, as far as a client can tell.
  const std::string storage = fmt::format("http://localhost:{}", port_);
  Json objects = Json::array();
  const Json wanted = json_in(request.body);
  for (const Json& object : wanted["objects"]) {
    const std::string sha256 = object["oid"];
    const std::size_t size = object["size"];
    Json entry{{"oid", sha256}, {"size", size}};
    if (!large_.contains(sha256)) {
      const std::string number = std::to_string(++last_upload_);
      parts_[number] = {.sha256 = sha256, .received = {}};
      Json upload{{"href", fmt::format("{}/storage/{}/1?signature=s", storage, number)}};
      if (size > uploads_.chunk_size) {
        upload["href"] = fmt::format("{}/join/{}?signature=s", storage, number);
        upload["header"] = {{"chunk_size", std::to_string(uploads_.chunk_size)}};
        for (std::size_t i = 1; (i - 1) * uploads_.chunk_size < size; ++i)
          upload["header"][fmt::format("{:05}", i)] = fmt::format("{}/storage/{}/{}?signature=s", storage, number, i);
      }
      entry["actions"] = {{"upload", std::move(upload)}};
      if (uploads_.verifies) entry["actions"]["verify"] = {{"href", url() + "/verify"}};
    }
    objects.push_back(std::move(entry));
  }
  return json_answer({{"objects", std::move(objects)}, {"transfer", "multipart"}});
}

std::string HubServer::take_part(const ServedRequest& request) {
  const std::size_t slash = request.path.find('/', 9);
  const auto upload = parts_.find(request.path.substr(9, slash - 9));
  if (upload == parts_.end()) return http_answer(403, "", "<Error><Code>AccessDenied</Code></Error>");
  received_ += request.body.size();
  upload->second.received[std::atoi(request.path.c_str() + slash + 1)] = request.body;
  if (sha256_of(request.body) == upload->second.sha256) large_[upload->second.sha256] = request.body;
  return http_answer(200, fmt::format("ETag: \"{}\"\r\n", sha256_of(request.body)), "");
}

std::string HubServer::join(const ServedRequest& request) {
  const std::string number = request.path.substr(6, request.path.find('?') - 6);
  const auto upload = parts_.find(number);
  if (upload == parts_.end()) return http_answer(403, "", "");
  std::string whole;
  const Json wanted = json_in(request.body);
  for (const Json& part : wanted["parts"]) {
    const std::string& bytes = upload->second.received[part["partNumber"].get<int>()];
    if (part["etag"] != "\"" + sha256_of(bytes) + "\"") return http_answer(400, "", "InvalidPart");
    whole += bytes;
  }
  if (sha256_of(whole) != upload->second.sha256 || wanted["oid"] != upload->second.sha256)
    return http_answer(400, "", "other contents");
  large_[upload->second.sha256] = whole;
  parts_.erase(upload);
  return json_answer({{"success", true}});
}

std::string HubServer::commit(const ServedRequest& request) {
  const auto at = repos_.find(repo_in(with_slashes(request.path), "/commit/"));
  if (at == repos_.end()) return http_answer(404, "", "");
  Repo next = at->second;
  Sha1 hash;
  hash.add(next.commit + request.body);
  std::istringstream lines(request.body);
  for (std::string line; std::getline(lines, line);) {
    const Json entry = json_in(line);
    const Json value = entry["value"];
    if (entry["key"] == "header" && value.value("parentCommit", next.commit) != next.commit)
      return http_answer(412, "", R"({"error": "A commit has happened since."})");
    if (entry["key"] == "file") next.files[value["path"]] = {.contents = decoded(value["content"])};
    if (entry["key"] == "lfsFile") {
      if (!large_.contains(value["oid"])) return http_answer(400, "", R"({"error": "the file is not there"})");
      next.files[value["path"]] = {.contents = large_.at(value["oid"]), .large = true};
    }
  }
  next.commit = hash.hex();
  repos_[at->first] = repos_[at->first.substr(0, at->first.find('@') + 1) + next.commit] = next;
  return json_answer({{"success", true}, {"commitOid", next.commit}, {"commitUrl", url() + "/commit/" + next.commit}});
}

}  // namespace qtrain::test
