// Model folders that are created next to, or merged into, a folder of the same name.
#include "train/checkpoint/pending_model.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "core/os/pending.h"
#include "tests/core/temp_folder.h"
#include "train/checkpoint/foreign_results.h"
#include "train/checkpoint/output_lock.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::TempFolder;

class PendingModels : public ::testing::Test {
 protected:
  /// Files below the scratch folder, with relative paths.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_.path()))
      if (!entry.is_directory() && entry.path().filename() != kResultMark)
        names.push_back(entry.path().lexically_relative(scratch_.path()));
    std::ranges::sort(names);
    return names;
  }
  /// A model with templates in a subfolder.
  static void write_model(const fs::path& folder, const std::string& text) {
    fs::create_directories(folder / "additional_chat_templates");
    for (const char* name : {"config.json", "model.safetensors", "additional_chat_templates/tools.jinja"})
      write_file(folder / name, text);
  }
  void make(const std::string& text) const {
    PendingModel model(target_, "qtrain merge");
    write_model(model.folder(), text);
    model.commit();
  }

  TempFolder scratch_;
  fs::path target_ = scratch_ / "out";
};

TEST_F(PendingModels, ReplaceOneFileByFile) {
  for (const char* text : {"first", "second", "third"}) {
    make(text);
    EXPECT_THAT(names(), ::testing::ElementsAre("out/additional_chat_templates/tools.jinja", "out/config.json",
                                                "out/model.safetensors"));
    for (const std::string& name : names()) EXPECT_EQ(read_text(scratch_ / name), text) << name;
  }
}

TEST_F(PendingModels, FollowLinksAsTheSystemDoes) {
  const fs::path here = fs::canonical(scratch_.path());
  fs::create_directories(here / "elsewhere/deep");
  fs::create_symlink("elsewhere/deep", here / "link");
  fs::create_symlink("none/../out", here / "dangling");
  EXPECT_EQ(model_place(here / "link/../out"), here / "elsewhere/out");
  EXPECT_EQ(model_place(here / "none/../out"), here / "out");
  EXPECT_EQ(model_place(here / "dangling"), here / "out");
  EXPECT_EQ(model_place(here / "link/"), here / "elsewhere/deep");
  EXPECT_EQ(model_place("/proc/self/cwd"), fs::current_path());
  EXPECT_EQ(model_place("/proc/self/cwd/out/"), fs::current_path() / "out");
}

// The folder has been deleted, so the link only has its last known name.
TEST_F(PendingModels, NameALinkThatHasNoPath) {
  const fs::path gone = scratch_ / "gone";
  fs::create_directory(gone);
  const Descriptor open(::open(gone.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  fs::remove(gone);
  const std::string link = "/proc/self/fd/" + std::to_string(open.get());
  try {
    const PendingModel model(link, "qtrain merge");
    ADD_FAILURE() << "is written to " << model.folder();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    EXPECT_EQ(e.text().place, link);
    EXPECT_THAT(e.text().cause, ::testing::HasSubstr("whose target has no path"));
  }
}

TEST_F(PendingModels, LeaveOtherFilesAndRemoveOtherWeights) {
  write_model(target_, "old");
  for (const char* name : {"notes.txt", "model-00001-of-00002.safetensors", "additional_chat_templates/rag.jinja"})
    write_file(target_ / name, "old");
  make("new");
  EXPECT_THAT(names(), ::testing::ElementsAre("out/additional_chat_templates/rag.jinja",
                                              "out/additional_chat_templates/tools.jinja", "out/config.json",
                                              "out/model.safetensors", "out/notes.txt"));
}

// The folder was empty or missing, or an earlier result of the command, when the work began.
class MeanwhileIn : public PendingModels {
 protected:
  /// Refuses to commit after `come` has put weights of "another" into the folder.
  void expect_kept(const std::function<void()>& come) {
    for (const char* before : {"missing", "empty", "own"}) {
      SCOPED_TRACE(before);
      fs::remove_all(target_);
      if (before == std::string("empty")) fs::create_directory(target_);
      if (before == std::string("own")) make("first");
      {
        PendingModel model(target_, "qtrain merge");
        write_model(model.folder(), "ours");
        come();
        EXPECT_EQ(testing::error_of([&] { model.commit(); }).kind(), ErrorKind::usage);
      }
      EXPECT_EQ(read_text(target_ / "model.safetensors"), "another");
    }
  }
};

TEST_F(MeanwhileIn, FoldersFilesOfOthersAreKept) {
  expect_kept([&] {
    fs::create_directories(target_);
    write_file(target_ / "model.safetensors", "another");
  });
}

TEST_F(MeanwhileIn, FoldersResultsOfTheSameCommandAreKept) {
  expect_kept([&] {
    write_model(target_, "another");
    mark_result(target_, "qtrain merge");
  });
}

// A run has started in the folder since the command, with or without --overwrite, checked it.
TEST_F(PendingModels, DoNotReplaceWhatARunIsWriting) {
  write_model(target_, "of the run");
  {
    PendingModel model(target_, "qtrain merge");
    write_model(model.folder(), "ours");
    const OutputLock of_run(target_);
    const Error e = testing::error_of([&] { model.commit(); });
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    EXPECT_THAT(e.text().cause, ::testing::HasSubstr("a run is writing to this folder"));
  }
  EXPECT_EQ(read_text(target_ / "model.safetensors"), "of the run");
}

TEST_F(PendingModels, VanishWithoutACommit) {
  { write_model(PendingModel(target_, "qtrain merge").folder(), "x"); }
  EXPECT_TRUE(names().empty());
}

// A killed process runs no destructors.
TEST_F(PendingModels, TakeNothingFromOneThatWasKilled) {
  for (const bool replaces : {false, true}) {
    fs::remove_all(target_);
    if (replaces) make("old");
    const pid_t child = ::fork();
    if (child == 0) {
      const PendingModel model(target_, "qtrain merge");
      write_model(model.folder(), "killed");
      write_file(model.folder() / "left.txt", "killed");
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    const fs::path beside = replaces ? target_ / "out" : target_;
    const fs::path left = beside.parent_path() / (".out." + std::to_string(child) + ".tmp");
    ASSERT_TRUE(fs::exists(left / "left.txt"));
    fs::create_directories(pending_name(beside));  // left by an earlier process with our process id
    write_file(pending_name(beside) / "left.txt", "killed");
    make("new");
    EXPECT_THAT(names(), ::testing::ElementsAre("out/additional_chat_templates/tools.jinja", "out/config.json",
                                                "out/model.safetensors"));
  }
}

TEST_F(PendingModels, AreNotMadeTwiceAtOnce) {
  const PendingModel first(target_, "qtrain merge");
  EXPECT_EQ(testing::error_of([&] { PendingModel second(target_, "qtrain merge"); }).kind(), ErrorKind::disk);
  EXPECT_TRUE(fs::exists(first.folder()));
}

}  // namespace
}  // namespace qtrain
