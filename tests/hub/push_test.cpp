// Pushing to a hub: what it has afterwards, and what is said about everything that can go wrong.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "core/formats/json.h"
#include "tests/hub/pushing.h"

namespace qtrain {
namespace {

using test::HubFault;
using test::Pushing;
using test::ServedRequest;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(Pushing, CreatesTheRepositoryAndCommitsTheResult) {
  const PushResult result = push_now();
  EXPECT_TRUE(result.is_new);
  EXPECT_TRUE(result.has_commit);
  EXPECT_EQ(result.commit, server_.commit_of(kRepo));
  EXPECT_EQ(result.page, server_.url() + "/o/n");
  for (const char* file : {"config.json", "README.md", "model.safetensors"})
    EXPECT_EQ(remote(file), read_text(model() / file)) << file;
  EXPECT_FALSE(server_.files_of(kRepo).contains("metrics.jsonl"));
  EXPECT_TRUE(server_.files_of(kRepo).at("model.safetensors").large);
  EXPECT_FALSE(server_.is_private(kRepo));
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(Pushing, TheTokenGoesToTheHubAlone) {
  push_now();
  int to_storage = 0;
  for (const ServedRequest& request : server_.requests()) {
    const bool is_storage = request.path.starts_with("/storage/") || request.path.starts_with("/join/");
    EXPECT_EQ(request.has_token(), !is_storage) << request.path;
    EXPECT_EQ(request.headers.at("host").starts_with("localhost"), is_storage) << request.path;
    to_storage += is_storage ? 1 : 0;
  }
  EXPECT_EQ(to_storage, 5) << "four parts, and their list";
}

TEST_F(Pushing, OnlyWhatDiffersIsCommitted) {
  push_now();
  const std::size_t received = server_.received();
  const PushResult same = push_now();
  EXPECT_FALSE(same.has_commit);
  EXPECT_EQ(same.commit, server_.commit_of(kRepo));
  EXPECT_EQ(server_.count("/commit/"), 1);
  write("README.md", "# another\n");
  const PushResult next = push_now();
  EXPECT_TRUE(next.has_commit);
  EXPECT_FALSE(next.is_new);
  EXPECT_EQ(remote("README.md"), "# another\n");
  EXPECT_EQ(server_.received(), received);
  const std::string body = server_.requests().back().body;
  EXPECT_EQ(std::ranges::count(body, '\n'), 2) << body;
  EXPECT_THAT(body, HasSubstr(R"("parentCommit": ")"));
}

// A file that is a whole number of parts, one part and a byte, one part, and none at all.
TEST_F(Pushing, FilesOfAnySizeArrive) {
  for (const std::size_t size : {3000u, 1001u, 1000u, 1u, 0u}) {
    write("model.safetensors", random_bytes(size, 5));
    push_now();
    EXPECT_EQ(remote("model.safetensors"), read_text(model() / "model.safetensors")) << size;
  }
}

TEST_F(Pushing, ABrokenPartIsSentAgain) {
  fail_requests("/storage/1/2", {.end_after = 300}, 2);
  push_now();
  EXPECT_EQ(remote("model.safetensors"), read_text(model() / "model.safetensors"));
  EXPECT_EQ(server_.count("/storage/"), 6);
}

TEST_F(Pushing, AnotherCallGoesOnWhereOneHasStopped) {
  fail_requests("/storage/1/3", {.end_after = 300});
  EXPECT_THAT(complaint(), AllOf(HasSubstr("model.safetensors"), HasSubstr("goes on where this one stopped"),
                                 Not(HasSubstr("signature"))));
  EXPECT_EQ(server_.received(), 2000u);
  ASSERT_THAT(records(), SizeIs(1));
  struct stat info {};
  ASSERT_EQ(::stat(records()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U) << "its addresses let anybody write";
  server_.fail_with({});
  push_now();
  EXPECT_EQ(remote("model.safetensors"), read_text(model() / "model.safetensors"));
  EXPECT_EQ(server_.received(), 3500u) << "no part is sent twice";
  EXPECT_THAT(records(), IsEmpty());
}

TEST_F(Pushing, ARecordThatIsOfNoUseIsNone) {
  struct Case {
    std::string name;
    std::function<void(Json&)> change;
  };
  const std::vector<Case> cases{{"no parts", [](Json& r) { r.erase("parts"); }},
                                {"another size", [](Json& r) { r["size"] = 3; }},
                                {"few parts", [](Json& r) { r["parts"].erase("2"); }},
                                {"many ETags", [](Json& r) { r["etags"].push_back("x"); }},
                                {"another repository", [](Json& r) { r["repository"] = "x"; }},
                                {"a wrong ETag", [](Json& r) { r["etags"][0] = "\"x\""; }},
                                {"no object", [](Json& r) { r = 3; }}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    write("model.safetensors", random_bytes(3500, 10 + static_cast<unsigned>(i)));
    fail_requests("/3?", {.end_after = 0});
    complaint();
    server_.fail_with({});
    ASSERT_THAT(records(), SizeIs(1)) << cases[i].name;
    Json record = read_json(records()[0]);
    cases[i].change(record);
    std::ofstream(records()[0]) << dump_json(record);
    push_now();
    EXPECT_EQ(remote("model.safetensors"), read_text(model() / "model.safetensors")) << cases[i].name;
  }
}

TEST_F(Pushing, ExpiredAddressesAreReplaced) {
  fail_requests("/storage/1/3", {.end_after = 300});
  complaint();
  server_.fail_with({});
  server_.expire_parts();
  push_now();
  EXPECT_EQ(remote("model.safetensors"), read_text(model() / "model.safetensors"));
  EXPECT_EQ(server_.received(), 2000u + 3500u);
  EXPECT_THAT(records(), IsEmpty());
}

// Its turn comes when its address has expired, as it does behind files of many gigabytes.
TEST_F(Pushing, AnAddressThatExpiresBeforeItsFirstByteIsReplaced) {
  for (const std::size_t size : {900u, 3500u}) {
    write("model.safetensors", random_bytes(size, 7));
    fail_requests("/storage/", {.status = 403, .body = "<Error>Request has expired</Error>"}, 1);
    push_now();
    EXPECT_EQ(remote("model.safetensors"), read_text(model() / "model.safetensors")) << size;
  }
  EXPECT_EQ(server_.count("objects/batch"), 4);
}

TEST_F(Pushing, AnUploadThatIsNotVerifiedGoesOnToo) {
  server_.set_uploads({.token = kToken, .verifies = false});
  fail_requests("/storage/1/3", {.end_after = 300});
  complaint();
  server_.fail_with({});
  push_now();
  EXPECT_EQ(remote("model.safetensors"), read_text(model() / "model.safetensors"));
  EXPECT_EQ(server_.received(), 3500u) << "no part is sent twice";
}

TEST_F(Pushing, LargeFilesAreNotReadIntoACommit) {
  write("config.json", "");
  std::filesystem::resize_file(model() / "config.json", 64'000'001);
  EXPECT_THAT(complaint(), AllOf(HasSubstr("config.json"), HasSubstr("64.0 MB"), HasSubstr("*.json filter=lfs")));
  for (const char* file : {"config.json", "tokenizer.json", "vocab.json"}) {
    write(file, "");
    std::filesystem::resize_file(model() / file, std::uint64_t{43} << 20);
  }
  EXPECT_THAT(complaint(), AllOf(HasSubstr("vocab.json"), HasSubstr("in all")));
  EXPECT_EQ(server_.count("/commit/"), 0);
}

TEST_F(Pushing, AStorageThatRefusesEverythingIsAnError) {
  fail_requests("/storage/", {.status = 403, .body = "<Error>signature</Error>"});
  EXPECT_THAT(complaint(), AllOf(HasSubstr("status 403"), HasSubstr("http://localhost"), Not(HasSubstr("signature"))));
}

TEST_F(Pushing, ACommitWhoseAnswerIsLostIsNotMadeTwice) {
  fail_requests("/commit/", {.end_unanswered = true}, 1);
  const PushResult result = push_now();
  EXPECT_TRUE(result.has_commit);
  EXPECT_EQ(result.commit, server_.commit_of(kRepo));
  EXPECT_EQ(server_.count("/commit/"), 1);
  for (const auto& file : result.files) EXPECT_EQ(name_of(file.as), "new") << file.path;
}

TEST_F(Pushing, ARepositoryThatAnotherProcessCreatesIsNotNew) {
  // The other process's repository appears after the first look.
  fail_requests("/revision/", {.status = 404, .headers = "X-Error-Code: RepoNotFound\r\n"}, 1);
  server_.add("models/o/n", {{"README.md", {.contents = "x"}}});
  const PushResult result = push_now();
  EXPECT_EQ(server_.count("/create"), 1);
  EXPECT_FALSE(result.is_new);
}

TEST_F(Pushing, ACommitThatComesBetweenIsLookedAt) {
  fail_requests("/commit/", {.status = 412, .body = R"({"error": "A commit has happened since."})"}, 1);
  push_now();
  EXPECT_EQ(server_.count("/commit/"), 2);
  EXPECT_EQ(server_.count("/revision/"), 3) << "before and after the repository is created, and after the refusal";
}

TEST_F(Pushing, ABusyHubIsAskedAgain) {
  for (const int status : {429, 503, 500}) {
    write("model.safetensors", random_bytes(3500, static_cast<unsigned>(status)));
    for (const char* part :
         {"/revision/", "/preupload/", "objects/batch", "/storage/", "/join/", "/verify", "/commit/"}) {
      write("README.md", part + std::to_string(status));
      fail_requests(part, {.status = status, .headers = "Retry-After: 1\r\n"}, 2);
      EXPECT_TRUE(push_now().has_commit) << part << status;
    }
  }
}

TEST_F(Pushing, WhatTheHubRefusesIsOneSentenceWithWhatToDo) {
  struct Case {
    int status;
    std::string part, cause, remedy;
  };
  const std::vector<Case> cases{{401, "/revision/", "does not accept the token", "hf auth login"},
                                {402, "/create", "payment", "billing"},
                                {403, "/create", "may not write", "role write, of an account that may write to o"},
                                {404, "/commit/", "no such repository or branch any more", "check the name"},
                                {409, "/commit/", "being changed by somebody else", "push again"},
                                {413, "/commit/", "does not take files of this size", "leave large files out"},
                                {429, "/preupload/", "no more requests for now", "in a few minutes"},
                                {500, "objects/batch", "fails with status 500", "later"},
                                {418, "/commit/", "status 418", server_.url()}};
  for (const Case& one : cases) {
    write("README.md", std::to_string(one.status));
    fail_requests(one.part, {.status = one.status, .body = R"({"error": "so it is"})"});
    const std::string text = complaint();
    EXPECT_THAT(text, AllOf(HasSubstr(one.cause), HasSubstr(one.remedy), HasSubstr("so it is"), HasSubstr("o/n")))
        << one.status;
    EXPECT_THAT(text, Not(HasSubstr(kToken)));
  }
}

TEST_F(Pushing, WhatAHubSaysIsShortened) {
  PushJob long_token = job();
  long_token.token = "hf_long_enough";
  server_.set_uploads({.token = long_token.token});
  const std::string said = long_token.token + std::string(5000, 'x');
  const auto is_short = [&](const std::string& text) {
    EXPECT_LT(text.size(), 1500u);
    EXPECT_THAT(text, AllOf(HasSubstr("xxx"), Not(HasSubstr(long_token.token))));
  };
  fail_requests("/validate-yaml", {.status = 400, .body = dump_json({{"errors", {{{"message", said}}}}})});
  is_short(complaint(long_token, ErrorKind::usage));
  const auto refuse = [&](const Json& entry) {
    fail_requests("objects/batch", {.status = 200, .body = dump_json({{"objects", {entry}}})});
    is_short(complaint(long_token));
  };
  const std::string sha256 = sha256_of(read_text(model() / "model.safetensors"));
  refuse({{"oid", sha256}, {"error", {{"message", said}}}});
  refuse({{"oid", sha256}, {"actions", {{"upload", {{"href", "ftp://" + said}}}}}});
}

TEST_F(Pushing, AHubThatCannotBeReachedIsNamed) {
  PushJob lost = job();
  lost.hub.endpoint = "http://127.0.0.1:1";
  EXPECT_THAT(complaint(lost), AllOf(HasSubstr("http://127.0.0.1:1 cannot be reached"), HasSubstr("HF_ENDPOINT")));
  PushJob offline = job();
  offline.hub.offline = true;
  EXPECT_THAT(complaint(offline, ErrorKind::usage), HasSubstr("HF_HUB_OFFLINE"));
}

TEST_F(Pushing, BeforeARunItIsKnownWhetherTheTokenMayWrite) {
  push_now();
  const std::string before = server_.commit_of(kRepo);
  server_.set_uploads({.token = kToken, .reader = "hf_reader", .is_open = true});
  const auto refusal = [&](const std::string& token) {
    PushJob asked = job();
    asked.token = token;
    Log log(LogLevel::silent);
    return test::error_of(ErrorKind::input, [&] { prepare_push(asked, log); });
  };
  EXPECT_THAT(refusal(""), HasSubstr("wants a token"));
  EXPECT_THAT(refusal("hf_reader"), HasSubstr("may not write"));
  Log log(LogLevel::silent);
  EXPECT_EQ(prepare_push(job(), log).repo, "o/n");
  EXPECT_EQ(server_.commit_of(kRepo), before);
}

TEST_F(Pushing, ATokenThatIsNotSentIsNotAskedFor) {
  PushJob anonymous = job();
  anonymous.token.clear();
  anonymous.hub.implicit_token = false;
  EXPECT_THAT(complaint(anonymous),
              AllOf(HasSubstr("unset HF_HUB_DISABLE_IMPLICIT_TOKEN"), Not(HasSubstr("set HF_TOKEN"))));
}

TEST_F(Pushing, WithoutATokenItSaysWhereToGetOne) {
  PushJob anonymous = job();
  anonymous.token.clear();
  EXPECT_THAT(complaint(anonymous), AllOf(HasSubstr("wants a token"), HasSubstr("HF_TOKEN")));
}

TEST_F(Pushing, NothingPrivateGetsIntoAPublicRepository) {
  PushJob secret = job();
  secret.is_private = true;
  push_as(secret);
  EXPECT_TRUE(server_.is_private(kRepo));
  secret.name.repo = "o/public";
  server_.add("models/o/public", {{"README.md", {.contents = "x"}}});
  EXPECT_THAT(complaint(secret, ErrorKind::usage), AllOf(HasSubstr("is public"), HasSubstr("/o/public/settings")));
  server_.set_uploads({.token = kToken, .knows_visibility = false});
  secret.name.repo = "o/untold";
  server_.set_uploads({.token = kToken, .tells_visibility = false});
  EXPECT_THAT(complaint(secret, ErrorKind::usage), HasSubstr("does not say whether the repository is private"));
  server_.set_uploads({.token = kToken, .knows_visibility = false});
  secret.name.repo = "o/old";
  const std::size_t received = server_.received();
  EXPECT_THAT(complaint(secret, ErrorKind::usage), HasSubstr("is public"));
  EXPECT_EQ(server_.received(), received);
  EXPECT_EQ(server_.count("/commit/"), 1);
}

TEST_F(Pushing, ABranchIsCreated) {
  push_now();
  PushJob branch = job();
  branch.name.revision = "refs/dev";
  write("README.md", "# dev\n");
  push_as(branch);
  EXPECT_EQ(server_.files_of("models/o/n@refs/dev").at("README.md").contents, "# dev\n");
  EXPECT_EQ(remote("README.md"), "# n\n");
  branch.name.revision = std::string(40, 'a');
  EXPECT_THAT(complaint(branch, ErrorKind::usage), HasSubstr("a commit cannot be changed"));
}

TEST_F(Pushing, TheOwnerIsTheAccountOfTheToken) {
  PushJob mine = job();
  mine.name.repo = "n";
  EXPECT_EQ(push_as(mine).name.repo, "me/n");
  EXPECT_EQ(server_.files_of("models/me/n@main").at("README.md").contents, "# n\n");
}

TEST_F(Pushing, ARepositoryThatWasRenamedIsFollowed) {
  push_now();
  server_.rename("o/former", "o/n");
  PushJob former = job();
  former.name.repo = "o/former";
  write("README.md", "# renamed\n");
  EXPECT_EQ(push_as(former).name.repo, "o/n");
  EXPECT_EQ(remote("README.md"), "# renamed\n");
}

TEST_F(Pushing, ADryRunOnlyLooks) {
  PushJob dry = job();
  dry.dry_run = true;
  PushResult result = push_as(dry);
  EXPECT_TRUE(result.is_new);
  EXPECT_FALSE(result.has_commit);
  push_now();
  write("README.md", "# changed\n");
  const std::size_t before = server_.requests().size();
  result = push_as(dry);
  std::vector<std::string> states;
  for (const auto& file : result.files) states.push_back(file.path + " " + std::string(name_of(file.as)));
  EXPECT_THAT(states, ElementsAre("README.md changed", "config.json unchanged", "model.safetensors unchanged"));
  const auto requests = server_.requests();
  for (std::size_t i = before; i < requests.size(); ++i) EXPECT_EQ(requests[i].method, "GET") << requests[i].path;
  EXPECT_EQ(remote("README.md"), "# n\n");
}

TEST_F(Pushing, WhatTheRepositoryIgnoresIsNotCommitted) {
  server_.set_uploads({.token = kToken, .ignored = "config.json"});
  const PushResult result = push_now();
  EXPECT_FALSE(server_.files_of(kRepo).contains("config.json"));
  EXPECT_EQ(name_of(result.files.at(1).as), "ignored");
  EXPECT_FALSE(push_now().has_commit) << "nothing is left to commit";
}

TEST_F(Pushing, WeightsThatStayBehindAreNamed) {
  push_now();
  std::filesystem::rename(model() / "model.safetensors", model() / "adapter_model.safetensors");
  write("adapter_config.json", "{}");
  EXPECT_THAT(push_now().stale_weights, ElementsAre("model.safetensors"));
}

TEST_F(Pushing, AFileThatChangesMeanwhileIsNotCommitted) {
  server_.fail_with([&](const ServedRequest& r) -> std::optional<HubFault> {
    if (r.path.find("/join/") != r.path.npos) write("config.json", "{\"model_type\": \"gemma\"}");
    return {};
  });
  EXPECT_THAT(complaint(), AllOf(HasSubstr("config.json"), HasSubstr("changed while it was being pushed")));
  EXPECT_EQ(server_.count("/commit/"), 0);
}

TEST_F(Pushing, WeightsThatAreNotThoseOfTheirManifestAreRefused) {
  PushJob sealed = job();
  sealed.files.back().required_sha256 = std::string(64, 'a');
  EXPECT_THAT(complaint(sealed), AllOf(HasSubstr("model.safetensors"), HasSubstr("manifest.json")));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

TEST_F(Pushing, ARequestWithABodyIsNotRedirectedToAnotherHost) {
  test::HubServer other;
  fail_requests("/commit/", {.status = 307, .headers = "Location: " + other.url() + "/x\r\n"});
  EXPECT_THAT(complaint(), HasSubstr("not safe"));
  EXPECT_THAT(other.requests(), IsEmpty());
}

// Whatever breaks, some call ends, and the hub then has the right bytes in few commits.
TEST_F(Pushing, RandomBreaksEndInTheRightBytes) {
  std::mt19937 random(11);
  int breaks = 0;
  for (unsigned round = 0; round < 18; ++round) {
    write("model.safetensors", random_bytes(7777, 100 + round));
    write("README.md", std::to_string(round));
    server_.fail_with([&](const ServedRequest&) -> std::optional<HubFault> {
      const auto chance = random() % 8;
      breaks += chance < 4 ? 1 : 0;
      if (chance == 0) return HubFault{.end_after = random() % 1000};
      if (chance == 1) return HubFault{.end_unanswered = true};
      if (chance == 2) return HubFault{.status = 503};
      if (chance == 3) return HubFault{.break_after = random() % 30};
      return {};
    });
    for (bool done = false; !done;) try {
        push_now();
        done = true;
      } catch (const Error& e) {
        ASSERT_EQ(e.kind(), ErrorKind::input) << e.what();
      }
    server_.fail_with({});
    EXPECT_EQ(remote("model.safetensors"), read_text(model() / "model.safetensors"));
    EXPECT_EQ(remote("README.md"), std::to_string(round));
    EXPECT_FALSE(push_now().has_commit);
  }
  EXPECT_GT(breaks, 200);
}

}  // namespace
}  // namespace qtrain
