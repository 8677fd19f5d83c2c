// What a snapshot lacks, and what is fetched to complete it.
#include <fstream>

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
using ::testing::HasSubstr;
using ::testing::Not;

// Not every model has these files, so their absence does not show in a snapshot: the list of the repository tells.
TEST_F(Fetching, FilesThatAnInterruptionLeftOutFollow) {
  for (const char* file : {"tokenizer_config.json", "chat_template.jinja", "generation_config.json"})
    files_[file].contents = std::string("{\"of\": \"") + file + "\"}";
  commit_ = server_.add("models/o/m", files_);
  for (const bool has_list : {true, false}) {
    fs::remove_all(cache_.path() / "models--o--m");
    options_.hub.offline = false;
    fetch({.repo = "o/m"});
    for (const char* file : {"tokenizer_config.json", "chat_template.jinja"})
      fs::remove(cache_.path() / "models--o--m/snapshots" / commit_ / file);
    if (!has_list) fs::remove_all(cache_.path() / "models--o--m/trees");
    options_.hub.offline = true;
    if (has_list)
      EXPECT_THAT(complaint({.repo = "o/m"}),
                  AllOf(HasSubstr("chat_template.jinja"), HasSubstr("tokenizer_config.json"),
                        HasSubstr("HF_HUB_OFFLINE"), Not(HasSubstr("generation_config"))));
    else
      fetch({.repo = "o/m"});
    options_.hub.offline = false;
    const int asked = server_.count("/api/");
    fetch({.repo = "o/m"});
    fetch({.repo = "o/m"});
    EXPECT_EQ(server_.count("/api/") - asked, has_list ? 0 : 1);
    for (const auto& [file, served] : files_)
      if (file != "pytorch_model.bin" && file != "README.md") {
        EXPECT_EQ(text(file), served.contents);
      }
  }
}

// Another program has fetched the commit of main, and the branch has moved since then.
TEST_F(Fetching, ASnapshotWithoutAListIsCompletedAtItsCommit) {
  fetch({.repo = "o/m"}, ModelFiles::text);
  fs::remove_all(cache_.path() / "models--o--m/trees");
  HubServer::Files later = files_;
  later["config.json"].contents = "{\"model_type\": \"qwen2\"}";
  server_.add("models/o/m", later);
  fetch({.repo = "o/m"});
  EXPECT_EQ(text("model.safetensors"), files_["model.safetensors"].contents);
  EXPECT_EQ(read_text(cache_.path() / "models--o--m/refs/main"), commit_);
}

TEST_F(Fetching, AHubThatDoesNotAnswerStopsNoRunThatHasItsFiles) {
  fetch({.repo = "o/m"});
  fs::remove_all(cache_.path() / "models--o--m/trees");
  server_.fail_with([](const ServedRequest&) { return std::optional(HubFault{.status = 404}); });
  fetch({.repo = "o/m"});
  fs::remove(cache_.path() / "models--o--m/snapshots" / commit_ / "model.safetensors");
  EXPECT_THAT(complaint({.repo = "o/m"}), HasSubstr("no such repository"));
}

TEST_F(Fetching, AnEmptyRefIsWrittenAgain) {
  fetch({.repo = "o/m"});
  const fs::path ref = cache_.path() / "models--o--m/refs/main";
  fs::resize_file(ref, 0);
  options_.hub.offline = true;
  EXPECT_THAT(complaint({.repo = "o/m"}), HasSubstr("no snapshot of revision main"));
  options_.hub.offline = false;
  fetch({.repo = "o/m"});
  EXPECT_EQ(read_text(ref), commit_);
}

TEST_F(Fetching, TheIndexSaysWhichFilesHaveTheWeights) {
  const std::string index =
      R"({"weight_map": {"a": "model.safetensors-00001-of-00002.safetensors", "b": "b.safetensors"}})";
  const HubServer::Files parts = {{"config.json", {.contents = "{}"}},
                                  {"tokenizer.json", {.contents = "[]"}},
                                  {"model.safetensors.index.json", {.contents = index}},
                                  {"model.safetensors-00001-of-00002.safetensors", {.contents = "1", .large = true}},
                                  {"b.safetensors", {.contents = "2", .large = true}},
                                  {"model-00001-of-00009.safetensors", {.contents = "3", .large = true}}};
  commit_ = server_.add("models/o/i", parts);
  const HubPlace place = fetch({.repo = "o/i"});
  for (const auto& [file, served] : parts)
    EXPECT_EQ(fs::exists(place.path / file), file != "model-00001-of-00009.safetensors") << file;
  HubServer::Files lacking = parts;
  lacking.erase("b.safetensors");
  server_.add("models/o/l", lacking);
  EXPECT_THAT(complaint({.repo = "o/l"}), HasSubstr("names b.safetensors, which the repository does not have"));
  HubServer::Files whole = parts;
  whole["model.safetensors"] = {.contents = "0", .large = true};
  server_.add("models/o/w", whole);
  EXPECT_TRUE(fs::exists(fetch({.repo = "o/w"}).path / "model.safetensors"));
  EXPECT_EQ(server_.count("o/w/resolve"), 4) << "the whole file is the one that is read";
}

// What is there already needs no space: an interrupted download, and contents of another commit.
TEST_F(Fetching, OnlyWhatIsStillToComeNeedsSpace) {
  const std::uint64_t huge = std::uint64_t{1} << 43;
  const std::string whole = files_["model.safetensors"].contents;
  files_["model.safetensors"].claimed_size = huge;
  commit_ = server_.add("models/o/m", files_);
  EXPECT_THAT(test::error_of(ErrorKind::disk, [&] { fetch({.repo = "o/m"}); }), HasSubstr("are to be fetched"));
  const fs::path blob = cache_.path() / "models--o--m/blobs" / sha256_of(whole);
  fs::create_directories(blob.parent_path());
  std::ofstream(blob) << whole;
  fs::resize_file(blob, huge);  // without taking space
  EXPECT_EQ(fs::file_size(fetch({.repo = "o/m"}).path / "model.safetensors"), huge);
}

TEST_F(Fetching, TheLogCountsWhatIsStillToCome) {
  const std::string whole = files_["model.safetensors"].contents;
  files_["adapter_model.safetensors"] = files_["model.safetensors"];  // the same contents
  commit_ = server_.add("models/o/m", files_);
  fetch({.repo = "o/m"}, ModelFiles::text);
  const fs::path part = cache_.path() / "models--o--m/blobs" / (sha256_of(whole) + ".incomplete");
  std::ofstream(part) << whole.substr(0, 150'000);
  ::testing::internal::CaptureStderr();
  {
    Log log(LogLevel::info);
    HubFetcher fetcher(options_, log);
    fetch_model(fetcher, {.repo = "o/m"}, ModelFiles::all);
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("fetching 1 file of o/m (50.0 kB)"));
  EXPECT_EQ(text("adapter_model.safetensors"), whole);
}

TEST_F(Fetching, GetsOnlyWhatACommandReads) {
  fetch({.repo = "o/m"}, ModelFiles::config);
  EXPECT_TRUE(has("snapshots/" + commit_ + "/config.json"));
  EXPECT_FALSE(has("snapshots/" + commit_ + "/tokenizer.json"));
  fetch({.repo = "o/m"}, ModelFiles::text);
  EXPECT_TRUE(has("snapshots/" + commit_ + "/tokenizer.json"));
  EXPECT_FALSE(has("snapshots/" + commit_ + "/model.safetensors"));
  fetch({.repo = "o/m"});
  EXPECT_TRUE(has("snapshots/" + commit_ + "/model.safetensors"));
}

TEST_F(Fetching, OfflineNothingIsAsked) {
  options_.hub.offline = true;
  EXPECT_THAT(complaint({.repo = "o/m"}), AllOf(HasSubstr("HF_HUB_OFFLINE"), HasSubstr("models--o--m does not exist")));
  EXPECT_EQ(server_.requests().size(), 0u);
  options_.hub.offline = false;
  fetch({.repo = "o/m"});
  options_.hub.offline = true;
  fetch({.repo = "o/m"});
}

}  // namespace
}  // namespace qtrain
