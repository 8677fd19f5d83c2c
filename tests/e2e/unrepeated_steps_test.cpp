// Steps that this machine could not repeat say nothing about the records of a run.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "core/build.h"
#include "tests/e2e/interrupted.h"
#include "tests/e2e/verified_run.h"

namespace qtrain::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class UnrepeatedSteps : public VerifiedRun {
 protected:
  void SetUp() override {
    VerifiedRun::SetUp();
    fs::create_directory(at("scratch"));
  }
  Launch verifying(std::vector<std::string> before = {}) const {
    const Launch own = launch_of({.words = {"verify", output().string(), "--scratch", at("scratch").string()}});
    before.insert(before.end(), own.argv.begin(), own.argv.end());
    return {.argv = before, .folder = folder_.path(), .input = {}, .environment = own.environment};
  }
  static void expect_undecided(const Outcome& o, int code) {
    EXPECT_EQ(o.code, code) << o.out << o.err;
    EXPECT_THAT(o.out + o.err, Not(HasSubstr("does not match its records")));
    EXPECT_THAT(o.err, HasSubstr("the "));
  }
  /// The process that repeats the steps, once it has logged a row.
  pid_t repeating(const Process& verify) const {
    for (int i = 0; i < 20000; ++i) {
      std::error_code removed;  // the process removes some folders
      for (fs::recursive_directory_iterator it(at("scratch"), removed), end; !removed && it != end;
           it.increment(removed))
        if (it->path().filename() == "metrics.jsonl") {
          std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", verify.pid()));
          pid_t child = 0;
          if (children >> child) return child;
        }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return 0;
  }
  /// Steps that wait when they log a row until the file "go" exists.
  Launch verifying_slowly() const {
    Launch launch = verifying();
    launch.environment.insert(
        launch.environment.end(),
        {fmt::format("LD_PRELOAD={}", QTRAIN_SHORTAGE), "HELD_FILE=/metrics.jsonl", "HELD_UNTIL=" + at("go").string()});
    return launch;
  }
};

// The weights are the first files that are larger than the limit, in blocks of 512 bytes.
TEST_F(UnrepeatedSteps, BecauseOfADiskAreNoFinding) {
  train_ok(folder_.path(), config());
  const auto weights = fs::file_size(output() / "model.safetensors");
  const std::string script = fmt::format("ulimit -f {} && exec \"$@\"", weights / 2 / 512);
  expect_undecided(Process(verifying({"/bin/sh", "-c", script, "sh"})).wait(), 6);
  EXPECT_TRUE(fs::is_empty(at("scratch")));
  EXPECT_EQ(verify().code, 0);
}

TEST_F(UnrepeatedSteps, BecauseOfASignalAreNoFinding) {
  if (std::string_view(QTRAIN_SHORTAGE).empty()) GTEST_SKIP() << "not under sanitizers";
  train_ok(folder_.path(), config());
  const struct { int signal, code; } cases[] = {{SIGKILL, 7}, {SIGTERM, 75}};
  for (const auto& k : cases) {
    SCOPED_TRACE(k.signal);
    fs::remove(at("go"));
    Process verify(verifying_slowly());
    const pid_t child = repeating(verify);
    ASSERT_GT(child, 0);
    ASSERT_EQ(::kill(child, k.signal), 0);
    write_file(at("go"), "");
    expect_undecided(verify.wait(), k.code);
    EXPECT_TRUE(fs::is_empty(at("scratch")));
  }
}

// More space would not help.
TEST_F(UnrepeatedSteps, BecauseOfAFolderThatCannotBeWrittenAreToldSo) {
  if (std::string_view(QTRAIN_SHORTAGE).empty()) GTEST_SKIP() << "not under sanitizers";
  train_ok(folder_.path(), config());
  Process verify(verifying_slowly());
  ASSERT_GT(repeating(verify), 0);
  fs::path metrics;
  for (const auto& entry : fs::recursive_directory_iterator(at("scratch")))
    if (entry.path().filename() == "metrics.jsonl") metrics = entry.path();
  const fs::path folder = metrics.parent_path();
  fs::rename(folder, folder.string() + ".moved");
  write_file(folder, "");
  write_file(at("go"), "");
  const Outcome o = verify.wait();
  expect_undecided(o, 6);
  EXPECT_THAT(o.err, AllOf(HasSubstr("name another folder with --scratch"), Not(HasSubstr("space"))));
  EXPECT_TRUE(fs::is_empty(at("scratch")));
}

// A signal in the last step leads to a checkpoint of that step, but to no result, or to one whose evaluation is still
// due.
TEST_F(UnrepeatedSteps, AreNotThoseThatASignalStoppedAtTheLastOne) {
  Json run = config();
  run.update({{"max_steps", 2}, {"save_steps", 1}, {"eval_steps", 1}});
  train_ok(folder_.path(), run);
  const std::vector<std::string> words{"verify", output().string(), "--scratch", at("scratch").string()};
  int stopped = 0, done = 0;
  for (int number = 2; number < 60 && done < 3; ++number) {  // the first rename is of a file that verify writes
    const auto launch = launch_stopped(words, {.call = "renamed", .text = {}, .number = number});
    if (!launch) GTEST_SKIP() << "no library can be loaded before the sanitizer";
    const Outcome o = Process(*launch).wait();
    SCOPED_TRACE(number);
    EXPECT_TRUE(o.code == 0 || o.code == 75) << o.code << o.out << o.err;
    EXPECT_THAT(o.out + o.err, Not(HasSubstr("does not match its records")));
    ++(o.code == 0 ? done : stopped);
  }
  EXPECT_GT(stopped, 0);
  EXPECT_EQ(done, 3) << "the signal came too late or never";
}

}  // namespace
}  // namespace qtrain::e2e
