// Results of commands and runs that use the same files at the same time.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "core/os/descriptor.h"
#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::HasSubstr;

class ParallelOutputs : public VerifiedRun {
 protected:
  void SetUp() override {
    VerifiedRun::SetUp();
    train_ok(folder_.path(), config());
  }
  std::string text_at(const char* name) const { return at(name).string(); }
  /// Hashes of all files below a folder.
  static std::map<std::string, std::string> files_below(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) files[entry.path().lexically_relative(folder)] = sha256_of_file(entry.path());
    return files;
  }
  void expect_untouched(const fs::path& folder, const std::vector<std::string>& words, const std::string& says) const {
    const auto before = files_below(folder);
    const Outcome o = qtrain({.words = words, .folder = folder_.path()});
    EXPECT_EQ(o.code, 2) << o.out << o.err;
    EXPECT_THAT(o.err, HasSubstr(says));
    EXPECT_EQ(files_below(folder), before);
  }
  /// A copy of the model that has weights. With more files in its own folder, the run could not be verified.
  std::string model_with_weights() const {
    fs::copy(model(), at("weights"));
    fs::copy(output() / "model.safetensors", at("weights/model.safetensors"));
    return text_at("weights");
  }
  void write_later_config(const Json& changes = Json::object()) const {
    Json c = config();
    c["max_steps"] = 6;
    c.update(changes);
    write_file(at("later.json"), dump_json(c));
  }
};

// Two processes of one command finish one after the other.
TEST_F(ParallelOutputs, OfOneCommandAreBothKept) {
  fs::create_directory(at("scratch"));
  const std::vector<std::string> words{"verify",           output().string(), "--scratch",
                                       text_at("scratch"), "--statement",     text_at("statement")};
  qtrain_ok({.words = words});
  const std::string first = bytes_of(at("statement"));
  for (const bool was_there : {false, true}) {
    SCOPED_TRACE(was_there ? "an earlier statement" : "no statement");
    if (!was_there) fs::remove(at("statement"));
    fs::remove(at("statement.2"));
    Process verifying(launch_of({.words = words}));
    while (verifying.running() && fs::is_empty(at("scratch")))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    write_file(at("statement"), first + " ");
    const Outcome o = verifying.wait();
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_EQ(bytes_of(at("statement")), first + " ");
    EXPECT_TRUE(read_json(at("statement.2")).contains("predicate"));
  }
}

// Writing a dump may take long.
TEST_F(ParallelOutputs, OfPreprocessLeaveAFileThatWasMadeWhileTheyWereWritten) {
  if (std::string_view(QTRAIN_SHORTAGE).empty()) GTEST_SKIP() << "not under sanitizers";
  fs::create_directory(at("dump"));
  write_file(at("mine"), "mine");
  Launch launch = launch_of({.words = {"preprocess", text_at("config.json"), "token_cache_dir=" + text_at("cache"),
                                       "--dump", text_at("dump/rows")}});
  launch.environment.insert(launch.environment.end(), {fmt::format("LD_PRELOAD={}", QTRAIN_SHORTAGE),
                                                       "HELD_FILE=/dump/", "HELD_UNTIL=" + text_at("dump/rows")});
  Process dumping(launch);
  while (dumping.running() && fs::is_empty(at("dump"))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fs::rename(at("mine"), at("dump/rows"));
  const Outcome o = dumping.wait();
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_EQ(bytes_of(at("dump/rows")), "mine");
  EXPECT_TRUE(fs::exists(at("dump/rows.2"))) << o.err;
}

TEST_F(ParallelOutputs, OfFoldersAreNotMixedWithThoseOfARun) {
  const Descriptor lock(::open((output() / ".lock").c_str(), O_RDWR | O_CLOEXEC));  // as a run holds it
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  expect_untouched(output(),
                   {"quantize", "--model", model_with_weights(), "--output", output().string(), "--overwrite"},
                   "a run is writing to this folder");
}

TEST_F(ParallelOutputs, OfEventsAreNoFilesOfTheRun) {
  write_later_config();
  for (const char* name : {"metrics.jsonl", "report.html", "model.safetensors", "messages.jsonl", ".lock", "vocab.json",
                           "checkpoint-2/training_state.json", "checkpoint-2/more.json", "checkpoint-6/events.jsonl",
                           "checkpoint-6.tmp/events", "checkpoint-6.tmp"}) {
    SCOPED_TRACE(name);
    expect_untouched(output(), {text_at("later.json"), "--events", (output() / name).string(), "--overwrite"},
                     (output() / name).string());
  }
  qtrain_ok({.words = {text_at("later.json"), "--events", (output() / "events.jsonl").string()}});
  EXPECT_EQ(verify().code, 0);
}

// A further .json or .safetensors file counts as damage, so the run could not be resumed from the checkpoint.
TEST_F(ParallelOutputs, OfNoCommandDamageACheckpoint) {
  const fs::path checkpoint = output() / "checkpoint-2";
  const std::string file = (checkpoint / "x.json").string(), weights = model_with_weights();
  write_file(at("prompts.jsonl"), "{\"prompt\": \"row\"}\n");
  const std::vector<std::vector<std::string>> all{
      {"bench", "rms_norm", "--small", "--json", file},
      {"monitor", "--duration", "0.1", "--json", file},
      {"tune", text_at("config.json"), "--steps", "1", "--trials", "1", "--output", file},
      {"preprocess", text_at("config.json"), "--dump", file},
      {"generate", "--model", weights, "--input", text_at("prompts.jsonl"), "--output", file},
      {"export", "--model", weights, "--output", file},
      {"quantize", "--model", weights, "--output", (checkpoint / "deep/model").string()},
      {text_at("config.json"), "output_dir=" + (checkpoint / "again").string()}};
  for (const auto& words : all)
    for (const bool overwrite : {false, true}) {
      SCOPED_TRACE(words.front() + (overwrite ? " --overwrite" : ""));
      std::vector<std::string> more = words;
      if (overwrite) more.emplace_back("--overwrite");
      expect_untouched(checkpoint, more, "would damage checkpoint-2");
    }
  const Outcome chat =
      qtrain({.words = {"chat", "--model", weights, "--max_new_tokens", "1"}, .input = "hello\n/save " + file + "\n"});
  EXPECT_FALSE(fs::exists(file)) << chat.err;
  EXPECT_THAT(chat.err, HasSubstr("would damage checkpoint-2"));
  qtrain_ok({.words = {"monitor", "--duration", "0.1", "--json", (checkpoint / "notes").string()}});
  EXPECT_EQ(verify().code, 0) << "notes are no damage";
}

// A copy that consists of links shares the files of the other run.
TEST_F(ParallelOutputs, OfARunAreNotWrittenThroughLinksIntoAnotherRun) {
  for (const char* name : {"metrics.jsonl", "report.html", "resolved_config.json", "trainer_state.json"}) {
    SCOPED_TRACE(name);
    fs::remove_all(at("copy"));
    fs::copy(output(), at("copy"), fs::copy_options::recursive);
    fs::remove(at("copy") / name);
    fs::create_symlink(output() / name, at("copy") / name);
    write_later_config({{"output_dir", text_at("copy")}});
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--overwrite"}}) {
      std::vector<std::string> words{text_at("later.json")};
      words.insert(words.end(), more.begin(), more.end());
      expect_untouched(output(), words, "is a link to a file of another run");
    }
  }
  EXPECT_EQ(verify().code, 0);
  fs::rename(output() / "metrics.jsonl", at("elsewhere.jsonl"));
  fs::create_symlink(at("elsewhere.jsonl"), output() / "metrics.jsonl");
  write_later_config();
  qtrain_ok({.words = {text_at("later.json")}});
  EXPECT_TRUE(fs::is_symlink(output() / "metrics.jsonl")) << "other links are followed";
  EXPECT_EQ(verify().code, 0);
}

// Large files are often moved to another disk.
TEST_F(ParallelOutputs, OfARunMayBeWrittenThroughLinksToItsOwnFilesElsewhere) {
  fs::create_directory(at("disk"));
  for (const char* name : {"checkpoint-2", "checkpoint-4", "model.safetensors"}) {
    fs::rename(output() / name, at("disk") / name);
    fs::create_symlink(at("disk") / name, output() / name);
  }
  write_later_config();
  qtrain_ok({.words = {text_at("later.json")}});
  EXPECT_EQ(history(output(), "loss").size(), 6u);
}

// The steps are done, so the run ends as it did before.
TEST_F(ParallelOutputs, OfAFinishedRunStayIfItsRecordsWereTruncated) {
  for (const std::string text : {"", "{\"run\": {\"max_st", "{\"run\": [4]}", "[]"}) {
    SCOPED_TRACE(text);
    write_file(output() / "resolved_config.json", text);
    qtrain_ok({.words = {text_at("config.json")}});
    EXPECT_EQ(bytes_of(output() / "resolved_config.json"), text);
  }
}

// It is in a folder that others may write to.
TEST_F(ParallelOutputs, AreNotWaitedForIfALockIsAFifo) {
  fs::remove(output() / ".lock");
  ASSERT_EQ(::mkfifo((output() / ".lock").c_str(), 0600), 0);
  Process reporting(launch_of({.words = {"report", output().string(), "--output", text_at("page.html")}}));
  const Outcome o = reporting.wait(std::chrono::seconds(20));
  EXPECT_FALSE(o.timed_out);
  EXPECT_EQ(o.code, 0) << o.err;
}

}  // namespace
}  // namespace qtrain::e2e
