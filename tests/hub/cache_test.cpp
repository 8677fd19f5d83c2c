#include "hub/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/core/temp_folder.h"
#include "tests/errors.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;

const std::string kFirst = "0123456789abcdef0123456789abcdef01234567",
                  kSecond = "0123456fffffffffffffffffffffffffffffffff";

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

/// A cache with two snapshots of o/n, as huggingface_hub writes it.
class CacheOfTwo : public ::testing::Test {
 protected:
  void SetUp() override {
    write(repo_ / "refs/main", kFirst);
    write(repo_ / "refs/refs/pr/1", kSecond);
    for (const std::string& commit : {kFirst, kSecond}) {
      write(repo_ / "blobs" / commit, "{}");
      fs::create_directories(repo_ / "snapshots" / commit);
      fs::create_symlink("../../blobs/" + commit, repo_ / "snapshots" / commit / "config.json");
    }
  }
  std::string commit_of(const std::string& revision) {
    return cache_.commit_of({.repo = "o/n", .revision = revision}).value_or("none");
  }

  TempFolder folder_;
  HubCache cache_{folder_.path()};
  fs::path repo_ = folder_.path() / "models--o--n";
};

TEST_F(CacheOfTwo, RevisionsAreBranchesCommitsAndTheirBeginnings) {
  EXPECT_EQ(commit_of("main"), kFirst);
  EXPECT_EQ(commit_of("refs/pr/1"), kSecond);
  EXPECT_EQ(commit_of(kSecond), kSecond);
  EXPECT_EQ(commit_of("0123456f"), kSecond);
  EXPECT_EQ(commit_of("0123456"), "none") << "both begin so";
  EXPECT_EQ(commit_of("012345"), "none") << "too short";
  EXPECT_EQ(commit_of("v1"), "none");
  EXPECT_EQ(commit_of("main/.."), "none");
}

TEST_F(CacheOfTwo, FindsTheSnapshotOfAName) {
  const auto place = cache_.find({.repo = "o/n"});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->path, repo_ / "snapshots" / kFirst);
  EXPECT_EQ(place->commit, kFirst);
  EXPECT_EQ(repo_of_snapshot(place->path), "o/n");
  EXPECT_FALSE(cache_.find({.kind = RepoKind::dataset, .repo = "o/n"}));
  EXPECT_FALSE(cache_.find({.repo = "o/other"}));
  EXPECT_EQ(cache_.folder_of({.kind = RepoKind::dataset, .repo = "imdb"}), folder_.path() / "datasets--imdb");
}

TEST_F(CacheOfTwo, SaysWhatIsMissing) {
  EXPECT_THAT(cache_.why_missing({.repo = "o/other"}), HasSubstr("models--o--other does not exist"));
  EXPECT_THAT(cache_.why_missing({.repo = "o/n", .revision = "v1"}),
              AllOf(HasSubstr("no snapshot of revision v1"), HasSubstr("main, refs/pr/1")));
  EXPECT_THAT(cache_.why_missing({.repo = "o/n", .quant = "Q8_0"}), HasSubstr("a GGUF file of type Q8_0 is not in"));
}

// A damaged or hostile file of a reference must not lead out of the cache.
TEST_F(CacheOfTwo, ARefIsACommit) {
  for (const char* text : {"../../..", "main", "\x1b[2J"}) {
    write(repo_ / "refs/main", text);
    EXPECT_THAT(test::error_of(ErrorKind::input, [&] { commit_of("main"); }), HasSubstr("should contain a commit"))
        << text;
  }
  for (const char* text : {"", "\n"}) {
    write(repo_ / "refs/main", text);
    EXPECT_EQ(commit_of("main"), "none") << "a program was killed while it wrote the file";
  }
  write(repo_ / "refs/main", kFirst + "\n");
  EXPECT_EQ(commit_of("main"), kFirst);
  fs::remove_all(repo_ / "snapshots" / kFirst);
  EXPECT_EQ(commit_of("main"), "none") << "a ref without its snapshot";
}

TEST_F(CacheOfTwo, AGgufFileIsFoundByItsType) {
  const fs::path snapshot = repo_ / "snapshots" / kFirst;
  for (const char* file : {"n-Q4_K_M.gguf", "n-Q4_K_S.gguf", "n.q8_0.gguf", "big/n-BF16-00001-of-00002.gguf",
                           "big/n-BF16-00002-of-00002.gguf", "Q6_K/n-a.gguf"})
    write(snapshot / file, "GGUF");
  const auto file_of = [&](const char* quant) {
    const auto place = cache_.find({.repo = "o/n", .quant = quant});
    return place ? place->path.lexically_relative(snapshot).string() : "none";
  };
  EXPECT_EQ(file_of("Q4_K_M"), "n-Q4_K_M.gguf");
  EXPECT_EQ(file_of("q4_k_m"), "n-Q4_K_M.gguf");
  EXPECT_EQ(file_of("Q8_0"), "n.q8_0.gguf");
  EXPECT_EQ(file_of("BF16"), "big/n-BF16-00001-of-00002.gguf");
  EXPECT_EQ(file_of("Q4_K"), "none");
  EXPECT_EQ(file_of("Q5_0"), "none");
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { file_of("n"); }), HasSubstr("several GGUF files"));
  EXPECT_TRUE(cache_.find({.repo = "o/n", .file = "n-Q4_K_S.gguf"}));
  EXPECT_FALSE(cache_.find({.repo = "o/n", .file = "none.gguf"}));
}

TEST(RepoOfSnapshot, IsNoneForOtherFolders) {
  for (const std::string& folder :
       std::vector<std::string>{"model", "/a/models--o--n/snapshots", "/a/models--o--n/snapshots/main",
                                "/a/datasets--o--n/snapshots/" + kFirst, "/a/models--..--n/snapshots/" + kFirst})
    EXPECT_FALSE(repo_of_snapshot(folder)) << folder;
  EXPECT_EQ(repo_of_snapshot("/a/models--gpt2/snapshots/" + kFirst + "/"), "gpt2");
}

}  // namespace
}  // namespace qtrain
