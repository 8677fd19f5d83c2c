#include "hub/upload_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "core/base64.h"
#include "core/formats/json.h"
#include "core/utf8.h"
#include "hub/upload_targets.h"

namespace qtrain {
namespace {

constexpr int kBadRequest = 400, kUnauthorized = 401, kPayment = 402, kForbidden = 403, kMissing = 404, kConflict = 409,
              kMoved = 412, kTooLarge = 413, kTooManyRequests = 429, kServerFails = 500;
constexpr std::size_t kFilesAtOnce = 256;
constexpr std::chrono::seconds kLongSilence{300};  // while the hub makes a commit

/// Calls `use` with parts of a list that the hub takes at once.
template <class Item, class Use>
void for_batches(const std::vector<Item>& items, const Use& use) {
  for (std::size_t at = 0; at < items.size(); at += kFilesAtOnce)
    use(std::span(items).subspan(at, std::min(kFilesAtOnce, items.size() - at)));
}

Json list_at(const Json& object, const char* member) {
  const auto it = object.is_object() ? object.find(member) : object.end();
  return it != object.end() && it->is_array() ? *it : Json::array();
}

/// The messages in a list of {"message": ...}.
std::vector<std::string> messages_at(const Json& answer, const char* member, const std::string& token) {
  constexpr std::size_t kMaxShown = 10;
  std::vector<std::string> all;
  for (const Json& entry : list_at(answer, member))
    if (const std::string text = shown_text(text_at(entry, "message"), token); !text.empty() && all.size() < kMaxShown)
      all.push_back(text);
  return all;
}

/// An answer about at most kFilesAtOnce files; null if it is no JSON, or has more values than such an answer needs.
Json answer_in(const HttpReply& reply) {
  try {
    return parse_json(reply.body, "answer", {.duplicate_keys = true, .max_values = std::uint64_t{1} << 22});
  } catch (const Error&) {
    return {};
  }
}

Error unexpected_answer(const UploadPlace& place, const std::string& what) {
  return {ErrorKind::input,
          {.cause = fmt::format("the answer of the hub {}", what),
           .place = place.name.text(),
           .remedy = "check HF_ENDPOINT"}};
}

std::string line_of(const CommittedFile& file) {
  Json value{{"path", file.path}};
  if (file.mode == UploadMode::large) {
    value.update({{"algo", "sha256"}, {"oid", file.large.sha256}, {"size", file.large.size}});
    return dump_json({{"key", "lfsFile"}, {"value", std::move(value)}}) + "\n";
  }
  value = {{"content", base64_of(file.contents)}, {"path", file.path}, {"encoding", "base64"}};
  return dump_json({{"key", "file"}, {"value", std::move(value)}}) + "\n";
}

}  // namespace

std::string UploadPlace::page() const {
  return fmt::format("{}/{}", hub.endpoint, name.repo);
}

std::string UploadApi::branch() const {
  std::string text;
  for (const char c : escaped_path(place_.name.revision)) text += c == '/' ? "%2F" : std::string(1, c);
  return text;
}

HttpReply UploadApi::ask(const HttpQuery& query) {
  for (int attempt = 1;; ++attempt) {
    HttpReply reply = client_.send(query);
    constexpr int kWhenUnreachable = 3;  // people should not wait long for the error about a wrong address
    const int attempts =
        reply.is_unreachable ? std::min(kWhenUnreachable, place_.rules.attempts) : place_.rules.attempts;
    if (!is_passing(reply) || attempt >= attempts) return reply;
    wait_before_retry(place_.rules, attempt, reply);
  }
}

HttpReply UploadApi::post(const std::string& path, const std::string& body, const char* type) {
  return ask({.url = place_.hub.endpoint + path,
              .method = HttpMethod::post,
              .body = text_body(body, type),
              .token = place_.token,
              .use_netrc = place_.hub.implicit_token,
              .max_silence = kLongSilence});
}

std::string UploadApi::account() {
  const HttpReply reply = ask(
      {.url = place_.hub.endpoint + "/api/whoami-v2", .token = place_.token, .use_netrc = place_.hub.implicit_token});
  if (!reply.is_success()) throw refused_push(place_, reply);
  const std::string name = text_at(json_in(reply.body), "name");
  if (!is_repo_id(name + "/x")) throw unexpected_answer(place_, "has no name of an account");
  return name;
}

RemoteRepo UploadApi::look() {
  const auto get = [&](const std::string& path) {
    return ask({.url = place_.hub.endpoint + path, .token = place_.token, .use_netrc = place_.hub.implicit_token});
  };
  RemoteRepo repo;
  HttpReply reply = get(fmt::format("{}/revision/{}?blobs=true", repo_path(), branch()));
  repo.has_branch = reply.is_success();
  if (reply.status == kMissing && reply.header("x-error-code") == "RevisionNotFound") reply = get(repo_path());
  if (reply.status == kMissing) return repo;
  if (!reply.is_success()) throw refused_push(place_, reply);
  ListedFiles files(place_.page());
  const Json answer = read_about(reply.body, files);
  if (!answer.is_object() || (repo.has_branch && !is_commit(text_at(answer, "sha"))))
    throw unexpected_answer(place_, "is not one of a hub");
  repo.exists = true;
  if (const auto it = answer.find("private"); it != answer.end() && it->is_boolean()) repo.is_private = it->get<bool>();
  if (repo.has_branch) repo.listing = {.commit = text_at(answer, "sha"), .files = files.take()};
  if (const std::string id = text_at(answer, "id"); is_repo_id(id) && id != place_.name.repo)
    repo.listing.moved_to = id;
  return repo;
}

bool UploadApi::create_repo(std::optional<bool> is_private) {
  const std::string& repo = place_.name.repo;
  const std::size_t slash = repo.find('/');
  Json wanted{{"name", repo.substr(slash + 1)}, {"organization", repo.substr(0, slash)}};
  if (is_private) wanted["visibility"] = *is_private ? "private" : "public";
  for (int attempt = 1;; ++attempt) {
    const HttpReply reply = post("/api/repos/create", dump_json(wanted));
    if (reply.is_success()) return true;
    const bool is_busy = reply.body.find("conflicting operation is in progress") != reply.body.npos;
    if (reply.status == kConflict && !is_busy) return false;  // another process has created it
    if (reply.status != kConflict || attempt >= place_.rules.attempts) throw refused_push(place_, reply);
    wait_before_retry(place_.rules, attempt, reply);
  }
}

void UploadApi::create_branch() {
  const HttpReply reply = post(fmt::format("{}/branch/{}", repo_path(), branch()), "{}");
  if (!reply.is_success() && reply.status != kConflict) throw refused_push(place_, reply);
}

std::vector<std::string> UploadApi::check_card(const std::string& card) {
  const HttpReply reply = post("/api/validate-yaml", dump_json({{"content", card}, {"repoType", "model"}}));
  const Json answer = answer_in(reply);
  if (reply.status == kBadRequest) {
    const auto problems = messages_at(answer, "errors", place_.token);
    fail(ErrorKind::usage, {.cause = fmt::format("the hub refuses the front matter of the card{}",
                                                 problems.empty() ? "" : ": " + problems.front()),
                            .place = "README.md",
                            .remedy = "correct the lines between the two ---"});
  }
  return messages_at(answer, "warnings", place_.token);  // a hub that checks no cards says so with another status
}

std::vector<UploadMode> UploadApi::modes_of(const std::vector<OfferedFile>& files) {
  std::map<std::string, UploadMode> modes;
  for_batches(files, [&](std::span<const OfferedFile> some) {
    Json offered = Json::array();
    for (const OfferedFile& file : some)
      offered.push_back({{"path", file.path}, {"sample", base64_of(file.sample)}, {"size", file.size}});
    const HttpReply reply =
        post(fmt::format("{}/preupload/{}", repo_path(), branch()), dump_json({{"files", std::move(offered)}}));
    if (!reply.is_success()) throw refused_push(place_, reply);
    for (const Json& entry : list_at(answer_in(reply), "files")) {
      const bool is_large = text_at(entry, "uploadMode") == "lfs";
      const auto ignored = entry.is_object() ? entry.find("shouldIgnore") : entry.end();
      const bool is_ignored = ignored != entry.end() && ignored->is_boolean() && ignored->get<bool>();
      modes[text_at(entry, "path")] = is_ignored ? UploadMode::ignored
                                      : is_large ? UploadMode::large
                                                 : UploadMode::regular;
    }
  });
  std::vector<UploadMode> in_order;
  for (const OfferedFile& file : files) {
    const auto mode = modes.find(file.path);
    if (mode == modes.end()) throw unexpected_answer(place_, "does not say how to upload " + file.path);
    // The storage for large files takes no empty ones.
    in_order.push_back(file.size == 0 && mode->second == UploadMode::large ? UploadMode::regular : mode->second);
  }
  return in_order;
}

std::vector<LargeTarget> UploadApi::targets_of(const std::vector<LargeObject>& objects) {
  std::vector<LargeTarget> targets;
  for_batches(objects, [&](std::span<const LargeObject> some) {
    Json wanted = Json::array();
    for (const LargeObject& object : some) wanted.push_back({{"oid", object.sha256}, {"size", object.size}});
    const HttpReply reply = post(fmt::format("/{}.git/info/lfs/objects/batch", place_.name.repo),
                                 dump_json({{"operation", "upload"},
                                            {"transfers", {"basic", "multipart"}},
                                            {"objects", std::move(wanted)},
                                            {"hash_algo", "sha256"},
                                            {"ref", {{"name", place_.name.revision}}}}),
                                 kLfsType);
    if (!reply.is_success()) throw refused_push(place_, reply);
    for (LargeTarget& target : read_targets(answer_in(reply), some, place_)) targets.push_back(std::move(target));
  });
  return targets;
}

void UploadApi::verify(const LargeTarget& target, const LargeObject& object) {
  if (target.verify.empty()) return;
  const bool is_hub = origin_of_url(target.verify) == origin_of_url(place_.hub.endpoint);
  const std::string body = dump_json({{"oid", object.sha256}, {"size", object.size}});
  const HttpReply reply = ask({.url = target.verify,
                               .method = HttpMethod::post,
                               .body = text_body(body, "application/json"),
                               .token = is_hub ? place_.token : "",
                               .use_netrc = is_hub && place_.hub.implicit_token,
                               .max_silence = kLongSilence});
  if (!reply.is_success()) throw refused_push(place_, reply);
}

HttpReply UploadApi::send_commit(const Commit& commit) {
  Json header{{"summary", commit.message}, {"description", ""}};
  if (!commit.parent.empty()) header["parentCommit"] = commit.parent;
  std::string body = dump_json({{"key", "header"}, {"value", std::move(header)}}) + "\n";
  for (const CommittedFile& file : commit.files) body += line_of(file);
  return client_.send({.url = fmt::format("{}{}/commit/{}", place_.hub.endpoint, repo_path(), branch()),
                       .method = HttpMethod::post,
                       .body = text_body(body, "application/x-ndjson"),
                       .token = place_.token,
                       .use_netrc = place_.hub.implicit_token,
                       .max_silence = kLongSilence});
}

Error refused_push(const UploadPlace& place, const HttpReply& reply) {
  const std::string said = said_by(reply, place.token);
  const std::string again = "push again: what has been uploaded need not be uploaded again";
  const auto error = [&](std::string cause, std::string remedy) {
    return Error(ErrorKind::input,
                 {.cause = std::move(cause), .place = place.name.text(), .remedy = std::move(remedy)});
  };
  switch (reply.status) {
    case 0:
      return error(fmt::format("{} cannot be reached: {}", place.hub.endpoint, reply.problem),
                   "check the connection (HF_ENDPOINT, https_proxy), then try again");
    case kUnauthorized:
      if (place.token.empty() && !place.hub.implicit_token)
        return error(fmt::format("the hub wants a token{}", said),
                     "unset HF_HUB_DISABLE_IMPLICIT_TOKEN, which keeps it from being sent");
      return place.token.empty() ? error(fmt::format("the hub wants a token{}", said),
                                         "log in with hf auth login, or set HF_TOKEN to a token that may write")
                                 : error(fmt::format("the hub does not accept the token{}", said),
                                         "log in again with hf auth login, or set HF_TOKEN to a token that may write");
    case kPayment:
      return error(fmt::format("the hub wants a payment{}", said), "see " + place.hub.endpoint + "/settings/billing");
    case kForbidden:
      return error(fmt::format("the account of the token may not write there{}", said),
                   fmt::format("use a token with the role write, of an account that may write to {}",
                               place.name.repo.substr(0, place.name.repo.find('/'))));
    case kMissing:
      return error(fmt::format("the hub has no such repository or branch any more{}", said),
                   "check the name and the revision");
    case kConflict:
    case kMoved: return error(fmt::format("the repository is being changed by somebody else{}", said), again);
    case kTooLarge:
      return error(fmt::format("the hub does not take files of this size{}", said),
                   "leave large files out that are not weights, or push a smaller checkpoint");
    case kTooManyRequests:
      return error(fmt::format("the hub allows no more requests for now{}", said), "in a few minutes, " + again);
    default: break;
  }
  if (reply.status >= kServerFails)
    return error(fmt::format("the hub fails with status {}{}", reply.status, said), "later, " + again);
  return error(fmt::format("the hub answers with status {}{}", reply.status, said), "see " + place.page());
}

}  // namespace qtrain
