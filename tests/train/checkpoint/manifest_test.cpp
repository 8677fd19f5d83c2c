#include "train/checkpoint/manifest.h"

#include <gmock/gmock.h>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/sha256.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::HasSubstr;

class Manifests : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(checkpoint_);
    write_file(checkpoint_ / "a.json", "abc");
    write_file(checkpoint_ / "empty", "");
    write_manifest(checkpoint_, 7);
  }

  std::string complaint(ManifestCheck check = ManifestCheck::sizes) const {
    const Error error = error_of([&] { check_manifest(checkpoint_, check); });
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  void seal(Json manifest) const {
    manifest.erase("sha256");
    manifest["sha256"] = sha256_of(dump_json(manifest));
    write_file(checkpoint_ / kManifest, dump_json(manifest));
  }

  TempFolder folder_;
  fs::path checkpoint_ = folder_ / "checkpoint-7";
};

TEST_F(Manifests, NameSizeAndHashOfEachFile) {
  check_manifest(checkpoint_, ManifestCheck::hashes);
  Json manifest = read_json(checkpoint_ / kManifest);
  EXPECT_EQ(
      manifest["files"],
      Json({{"a.json", {{"sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}, {"size", 3}}},
            {"empty", {{"sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}, {"size", 0}}}}));
  EXPECT_EQ(manifest["step"], 7);
  EXPECT_EQ(manifest["format_version"], 1);
  EXPECT_EQ(manifest["world_size"], 1);
  const std::string own = manifest["sha256"];
  manifest.erase("sha256");
  EXPECT_EQ(own, sha256_of(dump_json(manifest)));
}

TEST_F(Manifests, SeeAChangedFile) {
  write_file(checkpoint_ / "a.json", "abd");
  check_manifest(checkpoint_, ManifestCheck::sizes);
  EXPECT_THAT(complaint(ManifestCheck::hashes), HasSubstr("a.json: is damaged: its SHA-256 does not match"));
  write_file(checkpoint_ / "a.json", "ab");
  EXPECT_THAT(complaint(), HasSubstr("a.json: has 2 bytes, but 3 were saved"));
  fs::remove(checkpoint_ / "a.json");
  EXPECT_THAT(complaint(), HasSubstr("a.json: is missing"));
}

TEST_F(Manifests, SeeTheirOwnDamage) {
  const std::string whole = read_text(checkpoint_ / kManifest);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    if (whole[at] == ' ' || whole[at] == '\n') continue;  // formatting is not hashed
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file(checkpoint_ / kManifest, damaged);
    EXPECT_NE(complaint(), "") << at;
  }
  for (const char* other : {"", "[]", "{}", R"({"sha256": 1, "files": [], "step": "x"})"}) {
    write_file(checkpoint_ / kManifest, other);
    EXPECT_NE(complaint(), "") << other;
  }
  fs::remove(checkpoint_ / kManifest);
  EXPECT_THAT(complaint(), HasSubstr("has no manifest.json"));
}

TEST_F(Manifests, BelongToTheStepOfTheirFolder) {
  fs::rename(checkpoint_, folder_ / "checkpoint-8");
  checkpoint_ = folder_ / "checkpoint-8";
  EXPECT_THAT(complaint(), HasSubstr("its manifest is of step 7"));
  for (const char* same : {"checkpoint-8/", "checkpoint-8//", "checkpoint-8/."}) {
    checkpoint_ = folder_ / same;
    EXPECT_THAT(complaint(), HasSubstr("its manifest is of step 7")) << same;
  }
}

TEST_F(Manifests, NameAllFilesThatAreRead) {
  write_file(checkpoint_ / "more.json", "");
  EXPECT_THAT(complaint(), HasSubstr("more.json: is not one of the saved files"));
  fs::remove(checkpoint_ / "more.json");
  fs::create_symlink("/", checkpoint_ / "link.safetensors");
  EXPECT_THAT(complaint(), HasSubstr("link.safetensors: is not one of"));
  fs::remove(checkpoint_ / "link.safetensors");
  write_file(checkpoint_ / "note.md", "the good one");
  check_manifest(checkpoint_ / "", ManifestCheck::hashes);
  Json manifest = read_json(checkpoint_ / kManifest);
  manifest["files"] = Json::object();
  seal(manifest);
  EXPECT_THAT(complaint(), HasSubstr("is not one of"));
}

TEST_F(Manifests, OfAFinalModelLeaveOtherFilesAlone) {
  write_file(checkpoint_ / "more.json", "");
  write_manifest(checkpoint_, 3);
  fs::rename(checkpoint_ / "more.json", checkpoint_ / "other.json");
  EXPECT_THAT(error_of([&] { check_manifest(checkpoint_, ManifestCheck::sizes, Beside::anything); }).what(),
              HasSubstr("more.json: is missing"));
  fs::rename(checkpoint_ / "other.json", checkpoint_ / "more.json");
  fs::create_directories(checkpoint_ / "checkpoint-3");
  write_file(checkpoint_ / "checkpoint-3/config.json", "");
  write_file(checkpoint_ / "notes.safetensors", "");
  EXPECT_EQ(check_manifest(checkpoint_, ManifestCheck::hashes, Beside::anything), 3)
      << "other names in the folder do not matter";
  EXPECT_THAT(sealed_files(checkpoint_), ::testing::ElementsAre("a.json", "empty", "more.json"));
}

TEST_F(Manifests, OfAnotherFormatAreRefused) {
  for (const Json& version : {Json(2), Json("1"), Json(), Json::array({1})}) {
    Json manifest = read_json(checkpoint_ / kManifest);
    manifest["format_version"] = version;
    seal(manifest);
    EXPECT_THAT(complaint(), HasSubstr("has an unsupported format version")) << version;
  }
}

TEST_F(Manifests, CheckOneFileOfMany) {
  write_file(checkpoint_ / "empty", "x");
  check_file(checkpoint_, "a.json");
  write_file(checkpoint_ / "a.json", "abd");
  for (const char* file : {"a.json", "empty", "more"})
    EXPECT_EQ(error_of([&] { check_file(checkpoint_, file); }).kind(), ErrorKind::input) << file;
}

TEST_F(Manifests, HoldFilesOfFoldersToo) {
  fs::create_directories(checkpoint_ / "templates");
  write_file(checkpoint_ / "templates/tools", "abc");
  write_manifest(checkpoint_, 7);
  check_manifest(checkpoint_, ManifestCheck::hashes);
  write_file(checkpoint_ / "templates/tools", "abd");
  EXPECT_THAT(complaint(ManifestCheck::hashes), HasSubstr("templates/tools: is damaged: its SHA-256 does not match"));
}

TEST_F(Manifests, NameNothingOutsideTheirFolder) {
  for (const char* name : {"../a", "/etc/hostname", "x/../../a", "./a", "x//a", ""}) {
    Json manifest = read_json(checkpoint_ / kManifest);
    manifest["files"] = {{name, {{"size", 0}, {"sha256", ""}}}};
    seal(manifest);
    EXPECT_THAT(complaint(), HasSubstr("is not a file in this folder")) << name;
  }
}

}  // namespace
}  // namespace qtrain
