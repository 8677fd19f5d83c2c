#include "hub/hub_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>

#include "core/formats/json_items.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

constexpr int kTooMany = 429, kUnavailable = 503;
constexpr std::size_t kMaxFiles = 200'000, kMaxName = 255;

std::string api_url(const HubEnvironment& hub, const HubName& name) {
  std::string revision;
  for (const char c : escaped_path(name.revision)) revision += c == '/' ? "%2F" : std::string(1, c);
  return fmt::format("{}/api/{}/{}/revision/{}?blobs=true", hub.endpoint,
                     name.kind == RepoKind::model ? "models" : "datasets", name.repo, revision);
}

bool is_hex(const std::string& text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

std::optional<std::uint64_t> size_at(const Json& object) {
  const auto it = object.find("size");
  constexpr std::int64_t kMaxSize = std::int64_t{1} << 50;
  if (it == object.end() || !it->is_number_integer()) return {};
  const auto size = it->get<std::int64_t>();
  return size >= 0 && size <= kMaxSize ? std::optional(static_cast<std::uint64_t>(size)) : std::nullopt;
}

bool has_short_parts(const std::string& path) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end - begin > kMaxName) return false;
    begin = end + 1;
  }
  return true;
}

/// None for a file that cannot be fetched safely.
std::optional<RepoFile> file_in_listing(const Json& entry) {
  constexpr std::size_t kSha1 = 40, kSha256 = 64;
  if (!entry.is_object()) return {};
  RepoFile file{.path = text_at(entry, "rfilename"), .git_sha1 = text_at(entry, "blobId")};
  auto size = size_at(entry);
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) {
    file.sha256 = text_at(*lfs, "sha256");
    if (file.sha256.empty()) file.sha256 = text_at(*lfs, "oid");
    size = size_at(*lfs);
    if (!is_hex(file.sha256, kSha256)) return {};
  } else if (!is_hex(file.git_sha1, kSha1)) {
    return {};
  }
  if (!size || !is_safe_path(file.path) || !has_short_parts(file.path)) return {};
  file.size = *size;
  return file;
}

/// Null if there is none; the files are sorted.
const RepoFile* file_at(std::string_view path, const std::vector<RepoFile>& files) {
  const auto at = std::ranges::lower_bound(files, path, {}, &RepoFile::path);
  return at != files.end() && at->path == path ? &*at : nullptr;
}

/// The status is the same as that of a repository that does not exist.
bool is_bad_token(int status, const std::string& said) {
  return status == 401 && (said.find("Invalid credentials") != said.npos || said.find("expired") != said.npos);
}

}  // namespace

std::string text_at(const Json& object, const char* member) {
  if (!object.is_object()) return {};
  const auto it = object.find(member);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

std::string said_by(const HttpReply& reply, const std::string& token) {
  std::string said = reply.header("x-error-message");
  if (said.empty())
    if (const Json body = json_in(reply.body); body.is_object()) said = text_at(body, "error");
  return said.empty() ? "" : fmt::format(" (\"{}\")", shown_text(said, token));
}

bool is_passing(const HttpReply& reply) {
  constexpr int kTimeout = 408, kServer = 500;
  return reply.status == 0 || reply.status == kTimeout || reply.status == kTooMany || reply.status >= kServer;
}

void wait_before_retry(const RetryRules& rules, int attempt, const HttpReply& reply) {
  std::chrono::milliseconds left = rules.pause * (1 << std::min(attempt - 1, 10));
  if (const int asked = std::atoi(reply.header("retry-after").c_str()); asked > 0) left = std::chrono::seconds(asked);
  left = std::min(left, rules.longest_pause);
  const bool busy = reply.status == kTooMany || reply.status == kUnavailable;
  if (busy && rules.say)
    rules.say(fmt::format("the hub is busy (status {}): trying again in {:.1f} s", reply.status,
                          std::chrono::duration<double>(left).count()));
  for (constexpr std::chrono::milliseconds kStep{50}; left.count() > 0; left -= kStep) {
    throw_if_stopped();
    std::this_thread::sleep_for(std::min(left, kStep));
  }
}

Error refused_request(const HubEnvironment& hub, const HubName& name, const HttpReply& reply) {
  const std::string code = reply.header("x-error-code"),
                    page = fmt::format("{}/{}{}", hub.endpoint, name.kind == RepoKind::model ? "" : "datasets/",
                                       name.repo);
  const std::string token = hub_token(hub), said = said_by(reply, token);
  const bool logged_in = !token.empty();
  const std::string log_in = "log in with hf auth login, or set HF_TOKEN";
  const auto error = [&](std::string cause, std::string remedy) {
    return Error(ErrorKind::input, {.cause = std::move(cause), .place = name.text(), .remedy = std::move(remedy)});
  };
  if (reply.status == 0)
    return error(fmt::format("there is no such path, and {} cannot be reached: {}", hub.endpoint, reply.problem),
                 "check the path, or the connection (HF_ENDPOINT, https_proxy)");
  if (code == "GatedRepo")
    return error(fmt::format("this repository is gated{}", said),
                 fmt::format("accept its conditions on {}{}", page, logged_in ? "" : ", and " + log_in));
  if (code == "RevisionNotFound")
    return error(fmt::format("the hub has no revision {} of it", name.revision), "see " + page);
  if (code == "EntryNotFound") return error("the hub no longer has a file of this revision", "see " + page);
  if (is_bad_token(reply.status, said))
    return error(fmt::format("the hub does not accept the token{}", said),
                 fmt::format("log in again with hf auth login, or {}",
                             hub.token.empty() ? fmt::format("remove {}", hub.token_file.string())
                                               : std::string("unset HF_TOKEN")));
  if (reply.status == 401 || reply.status == 404)
    return error("there is no such path, and the hub has no such repository, or it is private",
                 logged_in ? "check the name, and whether the account of your token may see it"
                           : "check the name; for a private repository, " + log_in);
  if (reply.status == 403)
    return error(fmt::format("the hub refuses access{}", said),
                 logged_in ? "use a token that may read this repository" : log_in);
  if (reply.status == 429)
    return error(fmt::format("the hub allows no more requests for now{}", said),
                 logged_in ? "try again in a few minutes" : "try again in a few minutes, or " + log_in);
  if (reply.status >= 500)
    return error(fmt::format("the hub fails with status {}{}", reply.status, said), "try again later");
  return error(fmt::format("the hub answers with status {}{}", reply.status, said), "see " + page);
}

RepoListing list_repo(HttpClient& client, const HubEnvironment& hub, const HubName& name, const RetryRules& rules) {
  const std::string url = api_url(hub, name);
  const std::string token = hub_token(hub);
  const auto tell = [&] {
    if (rules.say) rules.say(fmt::format("waiting for an answer of {}", hub.endpoint));
  };
  HttpReply reply;
  for (int attempt = 1;; ++attempt) {
    reply = client.send({.url = url, .token = token, .use_netrc = hub.implicit_token, .on_wait = tell});
    if (reply.status == 200) break;
    // Without a connection, people should not wait for the error, which is often about a path that does not exist.
    const int when_silent = reply.is_unreachable ? 1 : 2;
    const int attempts = reply.status == 0 ? std::min(when_silent, rules.attempts) : rules.attempts;
    if (!is_passing(reply) || attempt >= attempts) throw refused_request(hub, name, reply);
    wait_before_retry(rules, attempt, reply);
  }
  RepoListing listing = read_listing(reply.body, url);
  if (listing.moved_to == name.repo) listing.moved_to.clear();
  if (is_commit(name.revision) && listing.commit != name.revision)
    fail(ErrorKind::input, {.cause = fmt::format("the hub answers with another commit: {}", listing.commit),
                            .place = name.text(),
                            .remedy = "check HF_ENDPOINT, and whether a proxy changes what it passes on"});
  return listing;
}

Json read_about(std::string_view answer, ListedFiles& files) try {
  // Each file has up to nine values; the other members of an answer are small.
  const JsonRules rules{.duplicate_keys = true, .max_values = std::uint64_t{1} << 22};
  return parse_json_items(answer, "", {.list = "siblings", .take = [&](const Json& entry) { files.add(entry); }},
                          rules);
} catch (const Error&) {  // no JSON
  return nullptr;
}

RepoListing read_listing(std::string_view answer, const std::string& place) {
  ListedFiles files(place);
  const Json about = read_about(answer, files);
  if (!about.is_object() || !is_commit(text_at(about, "sha")))
    fail(ErrorKind::input, {.cause = "the answer is not one of a hub", .place = place, .remedy = "check HF_ENDPOINT"});
  RepoListing listing{.commit = text_at(about, "sha"), .files = files.take()};
  if (std::string id = text_at(about, "id"); is_repo_id(id)) listing.moved_to = std::move(id);
  return listing;
}

void ListedFiles::add(const Json& entry) {
  if (++entries_ > kMaxFiles) return;
  if (auto file = file_in_listing(entry)) files_.push_back(std::move(*file));
}

std::vector<RepoFile> ListedFiles::take() {
  if (entries_ > kMaxFiles)
    fail(ErrorKind::input, {.cause = fmt::format("the repository has more than {} files", kMaxFiles), .place = place_});
  std::ranges::stable_sort(files_, {}, &RepoFile::path);
  const auto same = std::ranges::unique(files_, {}, &RepoFile::path);
  files_.erase(same.begin(), same.end());
  return std::move(files_);
}

const RepoFile* RepoListing::find(std::string_view path) const {
  return file_at(path, files);
}

std::string file_url(const HubEnvironment& hub, const HubName& name, const std::string& commit,
                     const std::string& file) {
  return fmt::format("{}/{}{}/resolve/{}/{}", hub.endpoint, name.kind == RepoKind::model ? "" : "datasets/", name.repo,
                     commit, escaped_path(file));
}

}  // namespace qtrain
