// Fetching from a hub: what arrives in the cache, and what is said about everything that can go wrong.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>

#include "core/sha256.h"
#include "tests/hub/fetching.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using test::Fetching;
using test::HubFault;
using test::HubServer;
using test::ServedRequest;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Fetching, FillsTheCacheAsHuggingfaceHubDoes) {
  const HubPlace place = fetch({.repo = "o/m"});
  EXPECT_EQ(place.path, cache_.path() / "models--o--m/snapshots" / commit_);
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"})
    EXPECT_EQ(text(file), files_[file].contents) << file;
  EXPECT_FALSE(has("snapshots/" + commit_ + "/pytorch_model.bin")) << "it is not needed";
  EXPECT_EQ(read_text(cache_.path() / "models--o--m/refs/main"), commit_);
  const std::string blob = test::git_blob_sha1(files_["config.json"].contents);
  EXPECT_EQ(fs::read_symlink(place.path / "config.json"), "../../blobs/" + blob);
  EXPECT_TRUE(fs::exists(cache_.path() / ".locks/models--o--m" / (blob + ".lock")));
  const int before = static_cast<int>(server_.requests().size());
  fetch({.repo = "o/m"});
  fetch({.repo = "o/m", .revision = commit_});
  EXPECT_EQ(static_cast<int>(server_.requests().size()), before) << "a complete snapshot needs no hub";
}

TEST_F(Fetching, ABranchWithASlashAndATagAndACommitAreRevisions) {
  server_.add("models/o/m", files_, "refs/pr/1");
  const HubPlace place = fetch({.repo = "o/m", .revision = "refs/pr/1"});
  EXPECT_EQ(read_text(cache_.path() / "models--o--m/refs/refs/pr/1"), place.commit);
  fetch({.repo = "o/m", .revision = commit_});
  EXPECT_FALSE(has("refs/" + commit_)) << "a commit needs no reference";
}

TEST_F(Fetching, AGgufFileIsFetchedAlone) {
  server_.add("models/o/g", {{"m-Q4_K_M.gguf", {.contents = "GGUF4", .large = true}},
                             {"m-Q8_0.gguf", {.contents = "GGUF8", .large = true}}});
  EXPECT_EQ(read_text(fetch({.repo = "o/g", .quant = "Q8_0"}).path), "GGUF8");
  EXPECT_EQ(server_.count("Q4_K_M"), 0);
  EXPECT_EQ(read_text(fetch({.repo = "o/g", .file = "m-Q4_K_M.gguf"}).path), "GGUF4");
  EXPECT_THAT(complaint({.repo = "o/g", .quant = "Q5_0"}),
              AllOf(HasSubstr("no such GGUF file"), HasSubstr("m-Q8_0.gguf")));
  EXPECT_THAT(complaint({.repo = "o/g"}), HasSubstr("qtrain import OWNER/NAME:Q4_K_M"));
}

TEST_F(Fetching, PickledWeightsAreRefused) {
  server_.add("models/o/p",
              {{"config.json", {.contents = "{}"}}, {"pytorch_model.bin", {.contents = "x", .large = true}}});
  EXPECT_THAT(complaint({.repo = "o/p"}), HasSubstr("run code when they are read"));
}

TEST_F(Fetching, ABrokenDownloadGoesOnWhereItStopped) {
  int calls = 0;
  server_.fail_with([&](const ServedRequest& r) -> std::optional<HubFault> {
    if (r.path.find("model.safetensors") == r.path.npos || ++calls > 3) return {};
    return HubFault{.break_after = 50'000};
  });
  fetch({.repo = "o/m"});
  EXPECT_EQ(text("model.safetensors"), files_["model.safetensors"].contents);
  std::vector<std::string> ranges;
  for (const ServedRequest& r : server_.requests())
    if (const auto range = r.headers.find("range"); range != r.headers.end()) ranges.push_back(range->second);
  EXPECT_THAT(ranges, ElementsAre("bytes=50000-", "bytes=100000-", "bytes=150000-"));
}

// What an earlier process has left is used too, unless it is not the beginning of the file.
TEST_F(Fetching, AnEarlierDownloadGoesOn) {
  const std::string whole = files_["model.safetensors"].contents;
  const fs::path part = cache_.path() / "models--o--m/blobs" / (sha256_of(whole) + ".incomplete");
  struct Left {
    std::string bytes;
    const char* range;
  };
  for (const Left& left :
       {Left{whole.substr(0, 70'000), "bytes=70000-"}, Left{std::string(60'000, 'x'), "bytes=60000-"},
        Left{std::string(300'000, 'x'), nullptr}, Left{whole, nullptr}}) {
    fs::remove_all(cache_.path() / "models--o--m");
    fs::create_directories(part.parent_path());
    std::ofstream(part) << left.bytes;
    const std::size_t before = server_.requests().size();
    fetch({.repo = "o/m"});
    EXPECT_EQ(text("model.safetensors"), whole);
    EXPECT_FALSE(fs::exists(part));
    std::string range;
    const auto requests = server_.requests();
    for (std::size_t i = before; i < requests.size(); ++i)
      if (requests[i].headers.contains("range")) range = requests[i].headers.at("range");
    EXPECT_EQ(range, left.range ? left.range : "");
  }
}

TEST_F(Fetching, AServerWithoutRangesSendsEverythingAgain) {
  int calls = 0;
  server_.fail_with([&](const ServedRequest& r) -> std::optional<HubFault> {
    if (r.path.find("model.safetensors") == r.path.npos) return {};
    return ++calls == 1 ? HubFault{.break_after = 50'000} : HubFault{.ignore_range = true};
  });
  fetch({.repo = "o/m"});
  EXPECT_EQ(text("model.safetensors"), files_["model.safetensors"].contents);
}

TEST_F(Fetching, LiesAboutSizesAndContentsAreFound) {
  for (const std::uint64_t claimed : {100'000u, 300'000u}) {
    HubServer::Files files = files_;
    files["model.safetensors"].claimed_size = claimed;
    server_.add("models/o/lie", files);
    EXPECT_THAT(
        complaint({.repo = "o/lie"}),
        AllOf(HasSubstr(fmt::format("the hub says that model.safetensors has {} bytes", claimed)), HasSubstr("sends")));
  }
  std::string changed = files_["model.safetensors"].contents;
  changed[1000] = static_cast<char>(changed[1000] ^ 1);
  server_.fail_with([&](const ServedRequest& r) -> std::optional<HubFault> {
    if (r.path.find("model.safetensors") == r.path.npos) return {};
    return HubFault{.contents = changed};
  });
  EXPECT_THAT(complaint({.repo = "o/m"}), HasSubstr("model.safetensors was fetched, but does not have the hash"));
  EXPECT_FALSE(has("snapshots/" + commit_ + "/model.safetensors"));
  EXPECT_FALSE(has("refs/main")) << "a reference is written when all is there";
  server_.fail_with([&](const ServedRequest& r) -> std::optional<HubFault> {
    if (r.path.find("config.json") == r.path.npos) return {};
    return HubFault{.contents = "{\"model_type\": \"other\"}"};
  });
  files_["config.json"].contents = "{\"model_type\": \"qwen2\"}";
  server_.add("models/o/small", files_);
  EXPECT_THAT(complaint({.repo = "o/small"}), HasSubstr("config.json was fetched, but does not have the hash"));
}

struct Refusal {
  HubFault fault;
  bool token;
  std::vector<const char*> said;
};
TEST_F(Fetching, EachRefusalSaysWhatToDo) {
  const Refusal refusals[] = {
      {{.status = 401, .headers = "X-Error-Code: GatedRepo\r\n"},
       false,
       {"gated", "accept its conditions on", "/o/m", "HF_TOKEN"}},
      {{.status = 403, .headers = "X-Error-Code: GatedRepo\r\nX-Error-Message: ask \x1b[2J the author\r\n"},
       true,
       {"gated (\"ask \\x1b[2J the author\")", "accept its conditions on"}},
      {{.status = 401}, false, {"no such repository, or it is private", "HF_TOKEN"}},
      {{.status = 401, .headers = "X-Error-Message: Invalid credentials in Authorization header\r\n"},
       true,
       {"the hub does not accept the token", "hf auth login", "HF_TOKEN"}},
      {{.status = 401, .body = "{\"error\": \"User Access Token is expired\"}"},
       true,
       {"the hub does not accept the token (\"User Access Token is expired\")"}},
      {{.status = 404}, true, {"no such repository", "the account of your token"}},
      {{.status = 404, .headers = "X-Error-Code: RevisionNotFound\r\n"}, false, {"the hub has no revision main"}},
      {{.status = 403}, false, {"refuses access", "hf auth login"}},
      {{.status = 429, .headers = "Retry-After: 7\r\n"}, false, {"no more requests for now", "in a few minutes"}},
      {{.status = 500, .body = "{\"error\": \"oops\"}"},
       false,
       {"fails with status 500 (\"oops\")", "try again later"}},
      {{.status = 503}, false, {"fails with status 503"}},
      {{.status = 418}, false, {"answers with status 418"}},
  };
  for (const Refusal& refusal : refusals) {
    options_.hub.token = refusal.token ? "hf_secret" : "";
    server_.fail_with([&](const ServedRequest&) { return std::optional(refusal.fault); });
    const std::string said = complaint({.repo = "o/m"});
    for (const char* part : refusal.said) EXPECT_THAT(said, HasSubstr(part)) << refusal.fault.status;
    EXPECT_THAT(said, Not(HasSubstr("hf_secret")));
  }
}

TEST_F(Fetching, ABusyHubIsAskedAgain) {
  std::map<std::string, int> seen;
  server_.fail_with([&](const ServedRequest& r) -> std::optional<HubFault> {
    const int n = seen[r.path]++;
    if (n == 0) return HubFault{.status = 503};
    if (n == 1) return HubFault{.status = 429, .headers = "Retry-After: 9\r\n"};
    return {};
  });
  std::mutex mutex;
  std::vector<std::string> said;
  options_.rules.say = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    said.push_back(text);
  };
  fetch({.repo = "o/m"});
  EXPECT_EQ(said.size(), 2 * seen.size()) << "one line for each wait";
  EXPECT_THAT(said, ::testing::Contains("the hub is busy (status 429): trying again in 0.0 s"));
  EXPECT_EQ(text("model.safetensors"), files_["model.safetensors"].contents);
}

// The name may be a path with a typo, whose owner should learn that at once.
TEST_F(Fetching, AHubThatCannotBeReachedIsAskedOnce) {
  constexpr std::chrono::seconds kPause{30};
  options_.rules.pause = options_.rules.longest_pause = kPause;
  for (const char* endpoint : {"http://127.0.0.1:1", "http://no.such.host.invalid"}) {
    options_.hub.endpoint = endpoint;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(complaint({.repo = "o/m"}),
                AllOf(HasSubstr("there is no such path, and " + std::string(endpoint) + " cannot be reached"),
                      HasSubstr("HF_ENDPOINT")));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPause);
  }
}

TEST_F(Fetching, SomethingElseThanAHubIsNamed) {
  options_.hub.endpoint = "file:///etc";
  EXPECT_THAT(complaint({.repo = "o/m"}), HasSubstr("not one of http or https"));
  options_.hub.endpoint = server_.url();
  server_.fail_with([](const ServedRequest&) { return std::optional(HubFault{.status = 200, .body = "<html>"}); });
  EXPECT_THAT(complaint({.repo = "o/m"}), HasSubstr("the answer is not one of a hub"));
}

// Large files are elsewhere, and their URLs are signed: that server must not learn the token.
TEST_F(Fetching, ATokenGoesToTheHubAlone) {
  HubServer elsewhere;
  elsewhere.add("models/o/m", files_);
  server_.redirect_large_files(elsewhere.url());
  options_.hub.token = "hf_secret";
  fetch({.repo = "o/m"});
  EXPECT_EQ(text("model.safetensors"), files_["model.safetensors"].contents);
  for (const ServedRequest& r : server_.requests())
    EXPECT_EQ(r.headers.at("authorization"), "Bearer hf_secret") << r.path;
  ASSERT_EQ(elsewhere.requests().size(), 1u);
  EXPECT_FALSE(elsewhere.requests()[0].has_token());
}

TEST_F(Fetching, APasswordOfNetrcIsAnImplicitToken) {
  const fs::path netrc = cache_.path() / "netrc";
  std::ofstream(netrc) << "machine 127.0.0.1 login me password secret\n";
  const test::HubVariables variables{{{"NETRC", netrc.string()}}};
  for (const bool implicit : {true, false}) {
    options_.hub.implicit_token = implicit;
    fs::remove_all(cache_.path() / "models--o--m");
    const std::size_t before = server_.requests().size();
    fetch({.repo = "o/m"});
    const auto requests = server_.requests();
    for (std::size_t i = before; i < requests.size(); ++i) EXPECT_EQ(requests[i].has_token(), implicit);
  }
}

TEST_F(Fetching, UnsafeRedirectsAreNotFollowed) {
  for (const char* to : {"file:///etc/passwd", "ftp://127.0.0.1/x", "http://user:word@127.0.0.1/x", "gopher://x", ""}) {
    fail_files({.status = 302, .headers = fmt::format("Location: {}\r\n", to)});
    const std::string said = complaint({.repo = "o/m"});
    EXPECT_THAT(said, AllOf(HasSubstr("not safe"), Not(HasSubstr("word")))) << to;
  }
  fail_files({.status = 302, .headers = "Location: /o/m/resolve/x\r\n"});
  EXPECT_THAT(complaint({.repo = "o/m"}), HasSubstr("too many redirects"));
}

TEST_F(Fetching, ARenamedRepositoryIsFound) {
  server_.rename("o/old", "o/m");
  const HubPlace place = fetch({.repo = "o/old"});
  EXPECT_EQ(place.path, cache_.path() / "models--o--old/snapshots" / commit_);
  EXPECT_EQ(read_text(place.path / "config.json"), files_["config.json"].contents);
}

// A hub, or somebody who may write to a repository on it, chooses the names of files.
TEST_F(Fetching, NamesFromTheHubStayInTheSnapshot) {
  const Json good{{"rfilename", "a/b.json"}, {"size", 3}, {"blobId", std::string(40, 'a')}};
  Json files = Json::array({good});
  for (const char* path : {"../x", "/etc/x", "a/../../x", "a//b", "./x", "a\nb", "\x1b[2J", "a\\..\\b", "", "a/"}) {
    Json file = good;
    file["rfilename"] = path;
    files.push_back(file);
  }
  for (const Json& change :
       {Json{{"size", -1}}, Json{{"size", "x"}}, Json{{"size", 1e30}}, Json{{"blobId", "../../x"}},
        Json{{"blobId", ""}}, Json{{"lfs", {{"sha256", "../x"}, {"size", 1}}}},
        Json{{"lfs", {{"sha256", std::string(64, 'a')}}}}, Json{{"rfilename", std::string(300, 'x')}}}) {
    Json file = good;
    file["rfilename"] = "c.json";
    file.update(change);
    files.push_back(file);
  }
  files.push_back(good);
  files.push_back(3);
  const RepoListing listing = read_listing(dump_json({{"sha", commit_}, {"siblings", files}}), "hub");
  ASSERT_EQ(listing.files.size(), 1u);
  EXPECT_EQ(listing.files[0].path, "a/b.json");
  for (const Json& answer : {Json(3), Json{{"sha", "../x"}}, Json{{"sha", 3}}, Json::object(), Json()})
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { read_listing(dump_json(answer), "hub"); }),
                HasSubstr("not one of a hub"));
}

// A list of 200,000 files took a minute, and parts of a GGUF file took longer than anyone waits.
TEST_F(Fetching, ManyFilesTakeTimeInProportion) {
  constexpr int kFiles = 90'000;
  RepoListing listing{.commit = commit_, .files = {}};
  std::set<std::string> parts;
  for (int i = 0; i < kFiles; ++i) {
    const std::string part = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, kFiles);
    parts.insert(part);
    listing.files.push_back({.path = part, .size = 1, .git_sha1 = std::string(40, 'b')});
    listing.files.push_back({.path = fmt::format("m-Q4_K_M-{:05}-of-{:05}.gguf", i + 1, kFiles),
                             .size = 1,
                             .git_sha1 = std::string(40, 'b')});
  }
  listing.files.push_back({.path = "model.safetensors.index.json", .size = 1, .git_sha1 = std::string(40, 'b')});
  std::ranges::sort(listing.files, {}, &RepoFile::path);
  const HubCache cache(cache_.path());
  const HubName name{.kind = RepoKind::model, .repo = "o/many"};
  HubName gguf = name;
  gguf.quant = "Q4_K_M";
  const auto begin = std::chrono::steady_clock::now();
  write_tree(cache, name, listing);
  EXPECT_EQ(read_tree(cache, name, commit_)->files.size(), listing.files.size());
  EXPECT_EQ(needed_files(listing, gguf, ModelFiles::all).size(), std::size_t{kFiles});
  EXPECT_EQ(needed_files(listing, name, ModelFiles::all, parts).size(), kFiles + 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST_F(Fetching, AListThatHasTooManyValuesIsRefused) {
  std::string body = fmt::format(R"({{"sha": "{}", "siblings": [)", commit_);
  for (int i = 0; i < 6'000'000; ++i) body += "{},";
  server_.fail_with([&](const ServedRequest& r) {
    return r.path.find("/api/") != r.path.npos ? std::optional(HubFault{.status = 200, .body = body + "{}]}"})
                                               : std::nullopt;
  });
  EXPECT_THAT(complaint({.kind = RepoKind::model, .repo = "o/m"}), HasSubstr("not one of a hub"));
}

TEST_F(Fetching, AFullDiskIsFoundBefore) {
  files_["model.safetensors"].claimed_size = std::uint64_t{1} << 49;
  server_.add("models/o/huge", files_);
  EXPECT_THAT(test::error_of(ErrorKind::disk, [&] { fetch({.repo = "o/huge"}); }),
              AllOf(HasSubstr("are to be fetched, but only"), HasSubstr("HF_HUB_CACHE")));
  EXPECT_EQ(server_.count("/resolve/"), 0);
}

TEST_F(Fetching, SeveralProcessesShareADownload) {
  std::vector<pid_t> processes;
  for (int i = 0; i < 3; ++i) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    int code = 1;
    try {
      fetch({.repo = "o/m"});
      code = 0;
    } catch (const Error&) {  // seen by the parent
    }
    ::_exit(code);
  }
  for (const pid_t process : processes) {
    int status = -1;
    ::waitpid(process, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(text("model.safetensors"), files_["model.safetensors"].contents);
  EXPECT_EQ(server_.count("model.safetensors"), 1);
}

// Breaks at random places: only the attempts that bring nothing count against the limit.
TEST_F(Fetching, RandomBreaksEndInTheRightBytes) {
  constexpr int kBreaks = 200;
  std::mt19937 random(11);
  int broken = 0;
  server_.fail_with([&](const ServedRequest& r) -> std::optional<HubFault> {
    if (r.path.find("/resolve/") == r.path.npos || broken >= kBreaks) return {};
    ++broken;
    if (random() % 8 == 0) return HubFault{.status = random() % 2 ? 500 : 429};
    return HubFault{.break_after = random() % 3000, .ignore_range = random() % 50 == 0};
  });
  options_.rules.attempts = 50;
  fetch({.repo = "o/m"});
  EXPECT_EQ(broken, kBreaks);
  for (const char* file : {"config.json", "tokenizer.json", "model.safetensors"})
    EXPECT_EQ(text(file), files_[file].contents) << file;
}

TEST(HttpUrls, OriginsAreCompared) {
  EXPECT_EQ(origin_of_url("HTTPS://Hub.Example:443/a?b"), "https://hub.example");
  EXPECT_EQ(origin_of_url("http://h:8080"), "http://h:8080");
  for (const char* url : {"", "h/x", "ftp://h/", "http://", "http://u@h/", "http://h\\@other/", "http://a b/"})
    EXPECT_NE(origin_of_url(url), "http://h") << url;
  EXPECT_EQ(origin_of_url("http://u:p@h/"), "");
  EXPECT_EQ(redirected_url("https://h/a/b", "/c"), "https://h/c");
  EXPECT_EQ(redirected_url("https://h", "/c"), "https://h/c");
  EXPECT_EQ(redirected_url("https://h/a", "//other/c"), "https://other/c");
  EXPECT_EQ(redirected_url("https://h/a", "http://other/c"), "http://other/c");
  EXPECT_EQ(redirected_url("https://h/a", "/c?from=https://x/y"), "https://h/c?from=https://x/y");
  EXPECT_EQ(escaped_path("a b/\xc3\xa4#?%.json"), "a%20b/%C3%A4%23%3F%25.json");
}

}  // namespace
}  // namespace qtrain
