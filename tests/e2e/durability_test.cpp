// After a kill, a full disk, a power failure or too little memory, a run continues and ends with the same result.
#include <set>

#include "core/os/file.h"
#include "tests/e2e/support.h"
#include "tests/e2e/trace.h"

namespace qtrain::e2e {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kSteps = 3;

bool is_inside(const fs::path& path, const fs::path& folder) {
  return path.string().starts_with(folder.string() + "/");
}

/// Logged rows as {step, kind}.
using Rows = std::vector<std::pair<int, std::string>>;
Rows rows_of(const std::vector<Json>& log) {
  Rows rows;
  for (const Json& row : log)
    for (const char* key : {"loss", "eval_loss", "train_loss"})
      if (row.contains(key)) rows.emplace_back(row.at("step"), key);
  return rows;
}

/// The temporary files and folders of saves and removals.
std::vector<std::string> unfinished(const fs::path& output) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(output))
    if (entry.path().string().ends_with(".tmp") || entry.path().string().ends_with(".removed"))
      names.push_back(entry.path());
  return names;
}

class Durability : public ::testing::Test {
 protected:
  void SetUp() override {
    write_untrained_model(folder_ / "model");
    write_file(folder_ / "rows.jsonl", jsonl({{{"text", "a row"}}, {{"text", "another row"}}, {{"text", "a third"}}}));
    write_file(folder_ / "config.json", dump_json(config()));
    train_ok(folder_.path(), config());
    fs::rename(output_, whole_);
  }

  /// A run that evaluates and saves after each of three steps, and keeps one checkpoint.
  Json config() const {
    Json config = tiny_run(output_);
    config.update({{"model_name_or_path", (folder_ / "model").string()},
                   {"random_init", true},
                   {"dataset_name", (folder_ / "rows.jsonl").string()},
                   {"eval_dataset_name", (folder_ / "rows.jsonl").string()},
                   {"eval_strategy", "steps"},
                   {"eval_steps", 1},
                   {"max_steps", kSteps},
                   {"save_strategy", "steps"},
                   {"save_steps", 1},
                   {"save_total_limit", 1}});
    return config;
  }
  Launch launch(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{(folder_ / "config.json").string(), "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return launch_of({.words = words});
  }

  /// Checks that the run in `output` continues and has the result of an undisturbed run.
  void expect_to_go_on(const fs::path& output) const {
    const Outcome outcome =
        qtrain({.words = {(folder_ / "config.json").string(), "output_dir=" + output.string(), "--quiet"}});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    for (const char* file : {"model.safetensors", "checkpoint-3/optimizer.safetensors"})
      EXPECT_TRUE(bytes_of(output / file) == bytes_of(whole_ / file)) << file;
    EXPECT_EQ(losses(output), losses(whole_));
    EXPECT_EQ(rows_of(read_jsonl(output / "metrics.jsonl")), rows_of(read_jsonl(whole_ / "metrics.jsonl")));
    for (const fs::path& sealed : {output, output / "checkpoint-3"})
      EXPECT_EQ(qtrain({.words = {"inspect", sealed.string(), "--verify"}}).code, 0) << sealed;
    EXPECT_THAT(unfinished(output), IsEmpty());
    EXPECT_FALSE(fs::exists(output / "checkpoint-1"));
    EXPECT_FALSE(fs::exists(output / "checkpoint-2"));
  }
  static Json losses(const fs::path& output) {
    Json rows = Json::array();
    for (const Json& row : history_without_times(output)) rows.push_back(row);
    return rows;
  }

  TempFolder folder_;
  fs::path output_ = folder_ / "out", whole_ = folder_ / "whole";
};

// Starts with the second save, so that there is something to lose.
TEST_F(Durability, AKillAtAnyCallThatRenamesOrRemovesLosesNothing) {
  if (!can_trace()) GTEST_SKIP() << "programs cannot be traced here (ptrace)";
  std::vector<fs::path> copies;
  const Outcome outcome = run_traced(launch(), [&](const FileCall& call) {
    const bool changes = call.name == "rename" || call.name == "unlink" || call.name == "rmdir" || call.name == "mkdir";
    if (!changes || !is_inside(call.path, output_) || !fs::exists(output_ / "checkpoint-2")) return 0;
    copies.push_back(folder_ / ("killed-" + std::to_string(copies.size())));
    fs::copy(output_, copies.back(), fs::copy_options::recursive);
    return 0;
  });
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_GT(copies.size(), 20u);
  for (const fs::path& copy : copies) {
    expect_to_go_on(copy);
    if (HasFailure()) FAIL() << "in the state before call " << &copy - copies.data();
  }
}

TEST_F(Durability, AFailureOfAnyCallOfASaveIsADiskError) {
  if (!can_trace()) GTEST_SKIP() << "programs cannot be traced here (ptrace)";
  constexpr int kEvery = 5;  // each takes a run and its repetition
  for (int failing = 0, seen = failing + 1; seen > failing; failing += kEvery) {
    fs::remove_all(output_);
    seen = 0;
    std::string what;
    bool moving = false;  // whether a finished model is being moved, which stays
    const Outcome outcome = run_traced(launch(), [&](const FileCall& call) {
      const bool saving =
          is_inside(call.path, output_ / "checkpoint-2.tmp") || is_inside(call.path, output_ / ".final.tmp");
      if (!saving || call.name == "unlink" || call.name == "rmdir" || seen++ != failing) return 0;
      what = call.name + " " + call.path.string();
      moving = call.name == "rename" && !is_inside(call.target, output_ / ".final.tmp") &&
               is_inside(call.path, output_ / ".final.tmp");
      return call.name == "fsync" ? EIO : ENOSPC;
    });
    if (what.empty()) break;
    EXPECT_EQ(outcome.code, 6) << what << outcome.err;
    EXPECT_THAT(outcome.err, AnyOf(HasSubstr("No space left"), HasSubstr("Input/output error"))) << what;
    if (!moving) {
      EXPECT_THAT(unfinished(output_), IsEmpty()) << what;
    }
    expect_to_go_on(output_);
    if (HasFailure()) FAIL() << "after " << what;
  }
}

/// Tracks which files and folders have changes that a power failure would undo.
class Unsynced {
 public:
  void take(const FileCall& call) {
    if (call.name == "write" || call.name == "ftruncate") changed_.insert(call.path);
    if (call.name == "mkdir") changed_.insert(call.path.parent_path());
    if (call.name == "fsync" || call.name == "unlink" || call.name == "rmdir") changed_.erase(call.path);
    if (call.name == "rename") rename(call.path, call.target);
  }
  /// `folder` and all paths below it.
  std::vector<fs::path> within(const fs::path& folder) const {
    std::vector<fs::path> paths;
    for (const fs::path& path : changed_)
      if (path == folder || is_inside(path, folder)) paths.push_back(path);
    return paths;
  }

 private:
  void rename(const fs::path& from, const fs::path& to) {
    for (const fs::path& path : within(from)) {
      changed_.erase(path);
      changed_.insert(to / path.lexically_relative(from));
    }
    changed_.insert(to.parent_path());
  }
  std::set<fs::path> changed_;
};

TEST_F(Durability, NamesAreGivenToWhatIsOnTheDisk) {
  if (!can_trace()) GTEST_SKIP() << "programs cannot be traced here (ptrace)";
  Unsynced unsynced;
  int files = 0, folders = 0, removed = 0;
  const Outcome outcome = run_traced(launch(), [&](const FileCall& call) {
    const std::string place = call.name + " " + call.path.string() + " " + call.target.string();
    if (call.name == "rename" && is_inside(call.path, output_)) {
      const bool folder = fs::is_directory(call.path), removal = call.target.extension() == ".removed";
      EXPECT_THAT(unsynced.within(call.path), IsEmpty()) << place;
      if (folder) {
        EXPECT_THAT(unsynced.within(output_ / "metrics.jsonl"), IsEmpty()) << place;
      }
      // An old checkpoint may only be removed once the new one has its final name on disk.
      if (removal) {
        EXPECT_THAT(unsynced.within(output_), IsEmpty()) << place;
      }
      ++(removal ? removed : folder ? folders : files);
    }
    const bool ours = call.path == output_ || is_inside(call.path, output_);
    if (ours && !is_inside(call.path, output_ / "runs")) unsynced.take(call);
    return 0;
  });
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(unsynced.within(output_), IsEmpty()) << "after the last call";
  EXPECT_GT(files, 20);
  EXPECT_EQ(folders, kSteps);
  EXPECT_EQ(removed, kSteps - 1);
}

TEST_F(Durability, AFileByItselfKeepsItsName) {
  if (!can_trace()) GTEST_SKIP() << "programs cannot be traced here (ptrace)";
  const fs::path folder = folder_ / "exported";
  fs::create_directories(folder);
  Unsynced unsynced;
  int renamed = 0;
  const Launch command = launch_of(
      {.words = {"export", "--model", whole_.string(), "--output", (folder / "model.gguf").string(), "--type", "f32"}});
  const Outcome outcome = run_traced(command, [&](const FileCall& call) {
    if (call.path == folder || is_inside(call.path, folder)) unsynced.take(call);
    renamed += call.name == "rename" ? 1 : 0;
    return 0;
  });
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(renamed, 1);
  EXPECT_THAT(unsynced.within(folder), IsEmpty());
}

/// Runs the program under `ulimit`.
Outcome limited(const std::string& limit, const Launch& launch) {
  Launch shell{.argv = {"/bin/sh", "-c", "ulimit " + limit + " && exec \"$@\"", "sh"}, .folder = {}};
  shell.argv.insert(shell.argv.end(), launch.argv.begin(), launch.argv.end());
  return Process(shell).wait();
}

TEST_F(Durability, AFileThatMayNotGrowIsADiskError) {
  const auto model = fs::file_size(whole_ / "model.safetensors");  // the optimizer state is twice as large
  const Outcome outcome = limited("-f " + std::to_string(model * 3 / 2 / 512), launch());
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("File too large"));
  EXPECT_THAT(unfinished(output_), IsEmpty());
  EXPECT_FALSE(fs::exists(output_ / "checkpoint-1"));
  expect_to_go_on(output_);
}

TEST_F(Durability, AFullDiskKeepsTheLastCheckpoint) {
  const fs::path disk = folder_ / "disk";
  fs::create_directories(disk);
  Json config = this->config();
  config["output_dir"] = (disk / "out").string();
  write_file(folder_ / "config.json", dump_json(config));
  const auto room = fs::file_size(whole_ / "checkpoint-3/optimizer.safetensors") * 5 / 2;
  const std::string script = "mount -t tmpfs -o size=" + std::to_string(room) + " none " + disk.string() +
                             " && echo mounted && { \"$@\"; code=$?; find " + disk.string() +
                             " -name '*.tmp'; \"$1\" inspect " + (disk / "out/checkpoint-1").string() +
                             " --verify; exit $code; }";
  Launch alone{.argv = {"/bin/sh", "-c", "exec unshare --mount --map-root-user sh -c \"$@\"", "sh", script, "sh"},
               .folder = {}};
  for (const std::string& word : launch().argv) alone.argv.push_back(word);
  const Outcome outcome = Process(alone).wait();
  if (outcome.out.find("mounted") == std::string::npos)
    GTEST_SKIP() << "no separate disk could be mounted: " << outcome.err;
  EXPECT_EQ(outcome.code, 6) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
  EXPECT_THAT(outcome.err,
              HasSubstr((disk / "out/checkpoint-1").string() + " is intact: the same command resumes from it"));
  EXPECT_THAT(outcome.out, Not(HasSubstr(".tmp")));
  EXPECT_THAT(outcome.out, HasSubstr("checkpoint-1: all files match their recorded hashes"));
}

// From the limit at which the program can be loaded to one that suffices, so that a different allocation fails each
// time.
TEST_F(Durability, TooLittleMemoryHasItsOwnCode) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "sanitizers reserve more addresses than any limit";
  const Launch version = launch_of({.words = {"--version"}});
  std::set<int> codes;
  for (int kib = 24'000; kib < 500'000 && !codes.contains(0); kib += 1'500) {
    const std::string limit = "-v " + std::to_string(kib);
    if (limited(limit, version).code != 0) continue;  // the libraries do not fit
    fs::remove_all(output_);
    const Outcome outcome = limited(limit, launch({"device=cpu", "threads=2"}));
    EXPECT_THAT(outcome.code, AnyOf(0, 4)) << kib << " KiB: " << outcome.err;
    codes.insert(outcome.code);
  }
  EXPECT_THAT(codes, ::testing::ElementsAre(0, 4));
  expect_to_go_on(output_);
}

TEST_F(Durability, AFileThatCannotBeMappedIsNoBadInput) {
  if (kAddressSanitizer || kThreadSanitizer) GTEST_SKIP() << "sanitizers reserve more addresses than any limit";
  write_file(folder_ / "model/model.safetensors", "");
  fs::resize_file(folder_ / "model/model.safetensors", std::uintmax_t{1} << 31);
  const Outcome outcome = limited("-v 1000000", launch({"device=cpu"}));
  EXPECT_EQ(outcome.code, 4) << outcome.err;
}

}  // namespace
}  // namespace qtrain::e2e
