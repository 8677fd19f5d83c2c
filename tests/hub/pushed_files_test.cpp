// Which files of a folder are pushed, and which addresses of a hub are used.
#include "core/formats/json.h"
#include "hub/upload_targets.h"
#include "tests/hub/pushing.h"

namespace qtrain {
namespace {

using test::Pushing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A folder alone.
class PushedFiles : public Pushing {
 protected:
  std::vector<std::string> paths(WhichFiles which = WhichFiles::result) const {
    std::vector<std::string> all;
    for (const PushedFile& file : files_to_push(model(), which).files) all.push_back(file.path);
    return all;
  }
  std::string refusal() const {
    return test::error_of(ErrorKind::input, [&] { files_to_push(model(), WhichFiles::result); });
  }
  std::string secret_in(const std::string& name, const std::string& contents) {
    write(name, contents);
    const std::string text = test::error_of(
        ErrorKind::usage, [&] { require_no_secrets(files_to_push(model(), WhichFiles::all).files, {kToken}); });
    std::filesystem::remove(model() / name);
    return text;
  }
};

TEST_F(PushedFiles, AreThoseOfTheResult) {
  for (const char* file :
       {"tokenizer.json", "additional_chat_templates/tools.jinja", "LICENSE.txt", "checkpoint-3/model.safetensors",
        "optimizer.safetensors", "notes.txt", ".lock", ".model.safetensors.12.tmp"})
    write(file, "x");
  EXPECT_THAT(paths(), ElementsAre("LICENSE.txt", "README.md", "additional_chat_templates/tools.jinja", "config.json",
                                   "model.safetensors", "tokenizer.json"));
  EXPECT_THAT(files_to_push(model(), WhichFiles::result).left_out,
              ElementsAre("checkpoint-3/", "metrics.jsonl", "notes.txt", "optimizer.safetensors"));
  EXPECT_THAT(paths(WhichFiles::all),
              ElementsAre("LICENSE.txt", "README.md", "additional_chat_templates/tools.jinja",
                          "checkpoint-3/model.safetensors", "config.json", "metrics.jsonl", "model.safetensors",
                          "notes.txt", "optimizer.safetensors", "tokenizer.json"));
}

TEST_F(PushedFiles, LinksToFoldersAreLeftOut) {
  write("sub/a.txt", "x");
  std::filesystem::create_directory(folder_ / "outside");
  std::ofstream(folder_ / "outside/b.txt") << "x";
  std::filesystem::create_directory_symlink(folder_ / "outside", model() / "sub/out");
  std::filesystem::create_directory_symlink(".", model() / "again");
  std::filesystem::create_directory_symlink(folder_ / "outside", model() / "additional_chat_templates");
  const PushSelection all = files_to_push(model(), WhichFiles::all);
  EXPECT_THAT(paths(WhichFiles::all),
              ElementsAre("README.md", "config.json", "metrics.jsonl", "model.safetensors", "sub/a.txt"));
  EXPECT_THAT(all.left_out, ElementsAre("additional_chat_templates/", "again/", "sub/out/"));
  EXPECT_THAT(paths(), ElementsAre("README.md", "config.json", "model.safetensors"));
}

TEST_F(PushedFiles, AFolderWithoutAResultIsRefused) {
  std::filesystem::remove(model() / "model.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("there is no model and no adapter"));
  write("checkpoint-9/model.safetensors", "x");
  write("checkpoint-20/model.safetensors", "x");
  write("checkpoint-30.superseded/model.safetensors", "x");
  EXPECT_THAT(refusal(), HasSubstr("push a checkpoint: " + (model() / "checkpoint-20").string()));
  write("model.gguf", "x");
  EXPECT_THAT(paths(), ElementsAre("README.md", "config.json", "model.gguf"));
  EXPECT_THAT(test::error_of(ErrorKind::input, [&] { files_to_push(model() / "none", WhichFiles::all); }),
              HasSubstr("is not a folder"));
}

TEST_F(PushedFiles, WeightsHaveToBeThere) {
  std::filesystem::remove(model() / "model.safetensors");
  write("model.safetensors.index.json", R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
    "b": "model-00002-of-00002.safetensors"}})");
  write("model-00001-of-00002.safetensors", "x");
  EXPECT_THAT(refusal(), HasSubstr("model-00002-of-00002.safetensors is missing"));
  write("model-00002-of-00002.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n");
  EXPECT_THAT(refusal(), HasSubstr("git-lfs"));
  std::filesystem::remove(model() / "model-00002-of-00002.safetensors");
  write("other.gguf", "x");
  EXPECT_THAT(refusal(), HasSubstr("model-00002-of-00002.safetensors is missing"));
  write("model-00002-of-00002.safetensors", "x");
  EXPECT_EQ(paths().size(), 6u);
}

TEST_F(PushedFiles, SecretsAreRefused) {
  const std::string letters(40, 'a');
  EXPECT_THAT(secret_in(".env", "A=1"), AllOf(HasSubstr(".env"), HasSubstr("--allow_secrets")));
  EXPECT_THAT(secret_in("sub/id_rsa", "x"), HasSubstr("name is that of a file with secrets"));
  EXPECT_THAT(secret_in("notes.txt", "token: hf_" + letters), HasSubstr("what looks like a key or token (hf_...)"));
  EXPECT_THAT(secret_in("notes.txt", std::string("x") + kToken), HasSubstr("the token of the hub"));
  EXPECT_THAT(secret_in("notes.txt", "-----BEGIN RSA PRIVATE KEY-----"), HasSubstr("PRIVATE KEY"));
  // In a long text also where two pieces of it meet.
  for (const std::size_t before : {(1u << 20) - 20, (1u << 20) - 4096 - 1, 5u << 20})
    EXPECT_THAT(secret_in("notes.txt", std::string(before, ' ') + "hf_" + letters), HasSubstr("(hf_...)")) << before;
  write("notes.txt", "shelf_" + letters + " hf_short AKIA");
  EXPECT_NO_THROW(require_no_secrets(files_to_push(model(), WhichFiles::all).files, {kToken}));
}

/// A large file of `size` bytes, and the answer that gives it these addresses.
struct Targets {
  std::string endpoint = "https://hub.example";
  std::uint64_t size = 25;
  Json upload = {
      {"href", "https://s3.example/join"},
      {"header", {{"chunk_size", "10"}, {"1", "https://s3/1"}, {"2", "https://s3/2"}, {"3", "https://s3/3"}}}};
  Json verify = Json();

  LargeTarget read() const {
    UploadPlace place{.hub = {}, .name = {.repo = "o/n"}, .token = {}};
    place.hub.endpoint = endpoint;
    const LargeObject object{.sha256 = "aa", .size = size};
    Json actions{{"upload", upload}};
    if (!verify.is_null()) actions["verify"] = verify;
    const Json answer{{"objects", {{{"oid", "aa"}, {"size", size}, {"actions", actions}}}}};
    return read_targets(answer, std::span(&object, 1), place).front();
  }
  std::string refusal() const {
    return test::error_of(ErrorKind::input, [&] { read(); });
  }
};

TEST(UploadTargets, AreReadInTheOrderOfTheirNumbers) {
  Targets targets{.size = 105};
  targets.upload["header"] = {{"chunk_size", 10}};
  for (int i = 11; i >= 1; --i) targets.upload["header"][std::to_string(i)] = "https://s3/" + std::to_string(i);
  const LargeTarget read = targets.read();
  EXPECT_EQ(read.chunk_size, 10u);
  ASSERT_EQ(read.parts.size(), 11u);
  EXPECT_EQ(read.parts[1], "https://s3/2");
  EXPECT_EQ(read.parts[10], "https://s3/11");
}

TEST(UploadTargets, OfAnotherEndpointMayBeNamedAsThoseOfTheUsualOne) {
  Targets targets;
  targets.verify = {{"href", "https://huggingface.co/o/n/verify"}};
  EXPECT_EQ(targets.read().verify, "https://hub.example/o/n/verify");
}

TEST(UploadTargets, ThatAreNotSafeOrDoNotFitAreRefused) {
  for (const char* bad :
       {"http://s3.example/1?key=k", "ftp://s3/1", "file:///etc/passwd", "//s3/1", "https://u@s3/1", ""}) {
    Targets targets;
    targets.upload["header"]["2"] = bad;
    EXPECT_THAT(targets.refusal(), AllOf(HasSubstr("not safe"), Not(HasSubstr("key=k")))) << bad;
    Targets verified;
    verified.verify = {{"href", bad}};
    EXPECT_THAT(verified.refusal(), HasSubstr("not safe")) << bad;
  }
  for (const std::uint64_t size : {0u, 20u, 31u}) {
    Targets targets;
    targets.size = size;
    EXPECT_THAT(targets.refusal(), HasSubstr("addresses for the parts")) << size;
  }
  Targets targets;
  targets.upload["header"]["chunk_size"] = "-3";
  EXPECT_THAT(targets.refusal(), HasSubstr("addresses for the parts"));
}

}  // namespace
}  // namespace qtrain
