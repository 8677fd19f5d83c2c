// What a hub that means harm sends, and what somebody else has put into the cache.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>

#include "core/os/descriptor.h"
#include "tests/hub/fetching.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using test::Fetching;
using test::HubFault;
using test::ServedRequest;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HostileHub : public Fetching {
 protected:
  fs::path repo() const { return cache_.path() / "models--o--m"; }
  /// The answer to requests for the list of files.
  void answer_lists(const HubFault& fault) {
    server_.fail_with(
        [fault](const ServedRequest& r) { return r.path.starts_with("/api/") ? std::optional(fault) : std::nullopt; });
  }
  static Json entry(const std::string& path) {
    return {{"rfilename", path}, {"size", 1}, {"blobId", std::string(40, 'a')}};
  }
};

// A link could lead anywhere, and writing to a FIFO waits for a reader.
TEST_F(HostileHub, FilesOfTheCacheAreWrittenOnlyAsFiles) {
  const fs::path victim = cache_.path() / "victim", behind = cache_.path() / "behind";
  const std::map<std::string, std::function<void(const fs::path&)>> kinds = {
      {"FIFO", [](const fs::path& file) { ::mkfifo(file.c_str(), 0600); }},
      {"link", [&](const fs::path& file) { fs::create_symlink(victim, file); }},
      {"dangling link", [&](const fs::path& file) { fs::create_symlink(behind, file); }},
      {"loop", [&](const fs::path& file) { fs::create_symlink(file, file); }},
      {"folder", [](const fs::path& file) { fs::create_directory(file); }}};
  for (const std::string& place : {std::string("refs/main"), "trees/" + commit_ + ".json"})
    for (const auto& [kind, make] : kinds) {
      if (place == "refs/main" && kind == "link") continue;  // it is read, and is no commit
      SCOPED_TRACE(place + " is a " + kind);
      fs::remove_all(repo());
      fs::create_directories((repo() / place).parent_path());
      write_file(victim, "precious");
      make(repo() / place);
      const Descriptor reader(::open((repo() / place).c_str(), O_RDWR | O_NONBLOCK));  // so that no mistake waits
      EXPECT_THAT(test::error_of(ErrorKind::disk, [&] { fetch({.repo = "o/m"}); }), HasSubstr("is not a regular file"));
      EXPECT_EQ(read_text(victim), "precious");
      EXPECT_FALSE(fs::exists(behind));
    }
}

TEST_F(HostileHub, APartWithAnotherNameKeepsItsContents) {
  const fs::path victim = cache_.path() / "victim",
                 part = repo() / "blobs" / (test::git_blob_sha1(files_["config.json"].contents) + ".incomplete");
  fs::create_directories(part.parent_path());
  write_file(victim, "precious");
  fs::create_hard_link(victim, part);
  fetch({.repo = "o/m"});
  EXPECT_EQ(text("config.json"), files_["config.json"].contents);
  EXPECT_EQ(read_text(victim), "precious");
}

// What other snapshots have is used again only if it has the size that the hub says.
TEST_F(HostileHub, ABlobOfAnotherSizeIsFetchedAgain) {
  const std::string name = test::git_blob_sha1(files_["config.json"].contents);
  fs::create_directories(repo() / "blobs");
  write_file(repo() / "blobs" / name, files_["config.json"].contents.substr(0, 5));
  fetch({.repo = "o/m"});
  EXPECT_EQ(text("config.json"), files_["config.json"].contents);
  for (const char* part : {"snapshots", "trees"}) fs::remove_all(repo() / part);
  files_["config.json"].claimed_size = 5;
  server_.add("models/o/m", files_);
  EXPECT_THAT(complaint({.repo = "o/m", .revision = commit_}), HasSubstr("says that config.json has 5 bytes"));
  EXPECT_FALSE(has("snapshots/" + commit_ + "/config.json"));
}

TEST_F(HostileHub, APartOrBlobThatIsNoFileIsRefused) {
  for (const char* ending : {"", ".incomplete"}) {
    const fs::path place = repo() / "blobs" / (test::git_blob_sha1(files_["config.json"].contents) + ending);
    fs::remove_all(repo());
    fs::create_directories(place.parent_path());
    ::mkfifo(place.c_str(), 0600);
    EXPECT_THAT(test::error_of(ErrorKind::disk, [&] { fetch({.repo = "o/m"}); }), HasSubstr("is not a regular file"));
    EXPECT_TRUE(fs::is_fifo(place)) << ending;
  }
}

// A commit is named to get the same files for ever.
TEST_F(HostileHub, AnotherCommitThanTheNamedOneIsRefused) {
  const std::string other(40, 'b');
  answer_lists({.status = 200, .body = dump_json({{"sha", commit_}, {"siblings", Json::array()}})});
  EXPECT_THAT(complaint({.repo = "o/m", .revision = other}), HasSubstr("another commit: " + commit_));
  EXPECT_FALSE(has("refs/" + other));
  EXPECT_FALSE(has("trees/" + commit_ + ".json"));
}

// A hub knows the token, but whoever reads a log should not.
TEST_F(HostileHub, WhatItSaysIsShownWithoutTheToken) {
  options_.hub.token = "hf_secretsecret";
  const std::string bearer = "Bearer " + options_.hub.token;
  struct Case {
    int status;
    std::string headers, body, shown;
  };
  for (const Case& c :
       {Case{403, "X-Error-Message: you sent " + bearer + "\r\n", "", "you sent Bearer <redacted>"},
        Case{500, "", dump_json({{"error", bearer + " is bad"}}), "Bearer <redacted> is bad"},
        Case{302, "Location: ftp://x/" + options_.hub.token + "/y\r\n", "", "ftp://x/<redacted>/y"},
        Case{302, "Location: ftp://x/?X-Amz-Signature=secretsecret\r\n", "", "ftp://x/?X-Amz-Signature=<redacted>"}}) {
    answer_lists({.status = c.status, .headers = c.headers, .body = c.body});
    EXPECT_THAT(complaint({.repo = "o/m"}), AllOf(HasSubstr(c.shown), Not(HasSubstr("secretsecret"))));
  }
}

TEST_F(HostileHub, WhatItSaysIsShortened) {
  const std::string longest(5000, 'x');
  for (const HubFault& fault : {HubFault{.status = 403, .headers = "X-Error-Message: " + longest + "\r\n"},
                                HubFault{.status = 403, .body = dump_json({{"error", longest}})},
                                HubFault{.status = 302, .headers = "Location: ftp://" + longest + "\r\n"}}) {
    answer_lists(fault);
    EXPECT_LT(complaint({.repo = "o/m"}).size(), 1000u);
  }
}

// libcurl repeats the address of a proxy that it cannot read.
TEST_F(HostileHub, ThePasswordOfAProxyIsNotShown) {
  for (const char* proxy : {"user:secretsecret@127.0.0.1:99999", "http://user:secretsecret@127.0.0.1:1",
                            "x://user:secretsecret@127.0.0.1"}) {
    const test::HubVariables variables{std::map<std::string, std::string>{{"http_proxy", proxy}}};
    EXPECT_THAT(complaint({.repo = "o/m"}), AllOf(HasSubstr("cannot be reached"), Not(HasSubstr("secretsecret"))))
        << proxy;
  }
}

TEST_F(HostileHub, ANetrcFileThatIsNoneIsNotWaitedFor) {
  const fs::path netrc = cache_.path() / "netrc";
  ::mkfifo(netrc.c_str(), 0600);
  const test::HubVariables variables{std::map<std::string, std::string>{{"NETRC", netrc.string()}}};
  fetch({.repo = "o/m"});
  EXPECT_EQ(text("config.json"), files_["config.json"].contents);
}

// An error is known by its status, however much follows.
TEST_F(HostileHub, ALongErrorIsStillOne) {
  const std::string body = "{\"error\": \"" + std::string(std::size_t{1} << 20, 'x') + "\"}";
  answer_lists({.status = 404, .headers = "X-Error-Code: RevisionNotFound\r\n", .body = body});
  EXPECT_THAT(complaint({.repo = "o/m"}), HasSubstr("the hub has no revision main"));
}

TEST_F(HostileHub, TooManyHeadersAreNamed) {
  std::string headers;
  for (int i = 0; i < 3000; ++i) headers += fmt::format("X-{}: {}\r\n", i, std::string(90, 'y'));
  answer_lists({.status = 200, .headers = headers, .body = "{}"});
  EXPECT_THAT(complaint({.repo = "o/m"}), HasSubstr("the answer is too large"));
}

TEST_F(HostileHub, FilesAreSortedAndOfOneNameTheFirst) {
  Json second = entry("a");
  second["size"] = 2;
  const RepoListing listing = read_listing(
      dump_json({{"sha", commit_}, {"siblings", {entry("b/c"), entry("a"), second, entry("a-b")}}}), "hub");
  std::vector<std::string> paths;
  for (const RepoFile& file : listing.files) paths.push_back(file.path);
  EXPECT_THAT(paths, ::testing::ElementsAre("a", "a-b", "b/c"));
  EXPECT_EQ(listing.find("a")->size, 1u);
  EXPECT_EQ(listing.find("b"), nullptr);
}

// Comparing each file with all others would take minutes.
TEST_F(HostileHub, ListsOfManyFilesTakeLittleTime) {
  constexpr int kFiles = 100'000;
  Json files = Json::array(), map = Json::object();
  auto& members = map.get_ref<Json::object_t&>();
  for (int i = 0; i < kFiles; ++i) {
    files.push_back(entry(fmt::format("model-{:06}-of-{}.safetensors", i, kFiles)));
    members.emplace_back(std::to_string(i), files.back()["rfilename"]);
  }
  files.push_back(entry("config.json"));
  files.push_back(entry("model.safetensors.index.json"));
  const std::clock_t begin = std::clock();
  const RepoListing listing = read_listing(dump_json({{"sha", commit_}, {"siblings", std::move(files)}}), "hub");
  ASSERT_EQ(listing.files.size(), kFiles + 2u);
  const HubCache cache(cache_.path());
  const HubName name{.repo = "o/m"};
  write_tree(cache, name, listing);
  EXPECT_EQ(read_tree(cache, name, commit_)->files.size(), listing.files.size());
  const fs::path snapshot = cache.snapshot_folder(name, commit_);
  fs::create_directories(snapshot);
  write_file(snapshot / "model.safetensors.index.json", dump_json({{"weight_map", std::move(map)}}));
  const auto parts = parts_in_index(snapshot);
  EXPECT_EQ(needed_files(listing, name, ModelFiles::all, parts).size(), listing.files.size());
  EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 30);  // takes 3 s, with sanitizers 10
}

TEST_F(HostileHub, AListOfTooManyValuesIsNoneOfAHub) {
  std::string zeros = "0";
  for (int i = 0; i < (1 << 22); ++i) zeros += ",0";
  for (const char* member : {"siblings", "tags"})
    EXPECT_THAT(
        test::error_of(
            ErrorKind::input,
            [&] { read_listing(fmt::format("{{\"sha\": \"{}\", \"{}\": [{}]}}", commit_, member, zeros), "hub"); }),
        HasSubstr("not one of a hub"));
}

}  // namespace
}  // namespace qtrain
