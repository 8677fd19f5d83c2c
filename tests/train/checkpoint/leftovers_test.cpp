// What interrupted saves and removals leave behind in an output directory.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::TempFolder;

class Leftovers : public ::testing::Test {
 protected:
  /// An intact checkpoint that contains this text.
  fs::path checkpoint(const std::string& name, const char* text, std::int64_t step = 8) const {
    fs::create_directories(folder_ / name);
    write_file(folder_ / name / "state", text);
    write_manifest(folder_ / name, step);
    return folder_ / name;
  }
  /// An intact checkpoint of this step, with its usual name.
  fs::path of_step(std::int64_t step) const { return checkpoint("checkpoint-" + std::to_string(step), "", step); }
  void save(std::int64_t step, const std::string& text) const {
    save_sealed({.target = folder_ / ("checkpoint-" + std::to_string(step)),
                 .step = step,
                 .write = [&](const fs::path& folder) { write_file(folder / "state", text); }});
  }
  void clear(const fs::path& named = "auto") {
    Log silent(LogLevel::silent);
    clear_leftovers(folder_.path(), named, silent);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  /// A finished final model of step 3 that has not been moved to its place yet.
  fs::path final_model() const {
    fs::create_directories(folder_ / ".final.tmp");
    write_final_model(folder_ / ".final.tmp");
    write_manifest(folder_ / ".final.tmp", 3);
    return folder_ / ".final.tmp";
  }
  static void write_final_model(const fs::path& folder) {
    fs::create_directories(folder / "templates");
    for (const char* name : {"config.json", "templates/tools.jinja"}) write_file(folder / name, "new");
  }
  std::string kept() const { return read_text(folder_ / "checkpoint-8/state"); }

  TempFolder folder_;
};

TEST_F(Leftovers, GoWhereTheirCheckpointIsThere) {
  checkpoint("checkpoint-8", "it");
  checkpoint("checkpoint-8.tmp", "tmp");
  checkpoint("checkpoint-8.removed", "removed");
  clear();
  EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-8"));
  EXPECT_EQ(kept(), "it");
}

TEST_F(Leftovers, AreCheckpointsAgainWhereTheOnlyOnes) {
  checkpoint("checkpoint-8.removed", "removed");
  clear();
  EXPECT_EQ(kept(), "removed");
  fs::remove_all(folder_ / "checkpoint-8");
  checkpoint("checkpoint-8.tmp", "newer");
  checkpoint("checkpoint-8.removed", "removed");
  clear();
  EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-8"));
  EXPECT_EQ(kept(), "newer");
}

// Temporary files of other programs, and of commands that are still writing, are none.
TEST_F(Leftovers, OfOneFileAreThoseOfAKilledRun) {
  constexpr int kNobody = 4'194'304;  // above the largest process id
  const std::string gone = "." + std::to_string(kNobody) + ".tmp", here = "." + std::to_string(::getppid()) + ".tmp";
  for (const std::string& name :
       {".metrics.jsonl" + gone, ".mine" + gone, ".metrics.jsonl" + here, std::string(".x.tmp")})
    write_file(folder_ / name, "x");
  std::vector<std::string> stay{".mine" + gone, ".metrics.jsonl" + here, ".x.tmp"};
  std::ranges::sort(stay);
  clear();
  EXPECT_EQ(names(), stay);
}

TEST_F(Leftovers, GoWhereNotWhole) {
  fs::remove(checkpoint("checkpoint-8.tmp", "tmp") / kManifest);
  fs::remove(checkpoint("checkpoint-8.removed", "removed") / "state");
  clear();
  EXPECT_TRUE(names().empty());
}

TEST_F(Leftovers, StayWhereARunGoesOnFromThem) {
  checkpoint("checkpoint-8", "it");
  const fs::path named = checkpoint("checkpoint-8.removed", "removed");
  clear(named / "");
  EXPECT_EQ(read_text(named / "state"), "removed");
}

TEST_F(Leftovers, OfAFinalModelGo) {
  fs::create_directories(folder_ / ".final.tmp/additional_chat_templates");
  write_file(folder_ / ".final.tmp/config.json", "{}");
  clear();
  EXPECT_TRUE(names().empty());
}

TEST_F(Leftovers, AWholeFinalModelTakesItsPlace) {
  write_file(folder_ / "config.json", "of a run before");
  write_file(folder_ / kManifest, "likewise");
  const fs::path staged = final_model();
  fs::rename(staged / "config.json", folder_ / "config.json");  // the run was killed after this move
  clear();
  EXPECT_FALSE(fs::exists(staged));
  EXPECT_EQ(check_manifest(folder_.path(), ManifestCheck::hashes, Beside::anything), 3);
  EXPECT_EQ(read_text(folder_ / "config.json"), "new");
}

TEST_F(Leftovers, AFinalModelThatIsNotWholeGoes) {
  for (const char* damaged : {"config.json", "templates/tools.jinja"}) {
    write_file(folder_ / "config.json", "old");
    const fs::path staged = final_model();
    write_file(staged / damaged, "two");  // has the same size
    clear();
    EXPECT_FALSE(fs::exists(staged));
    EXPECT_EQ(read_text(folder_ / "config.json"), "old");
  }
}

TEST_F(Leftovers, AFinalModelStaysWhereItCannotTakeItsPlace) {
  const fs::path in_the_way = folder_ / "templates/tools.jinja/x";
  fs::create_directories(in_the_way);
  const auto error = testing::error_of([&] {
    save_sealed_into(
        {.target = folder_.path(), .step = 3, .write = [&](const fs::path& to) { write_final_model(to); }});
  });
  EXPECT_EQ(error.kind(), ErrorKind::disk);
  EXPECT_THAT(error.text().remedy, ::testing::HasSubstr((folder_ / ".final.tmp").string()));
  clear();
  ASSERT_TRUE(fs::exists(folder_ / ".final.tmp"));
  fs::remove_all(in_the_way.parent_path());
  clear();
  EXPECT_EQ(check_manifest(folder_.path(), ManifestCheck::hashes, Beside::anything), 3);
  EXPECT_FALSE(fs::exists(folder_ / ".final.tmp"));
}

TEST_F(Leftovers, CheckpointsAreInTheOrderOfTheirSteps) {
  for (const std::int64_t step : {10, 9, 100, 1}) of_step(step);
  checkpoint("checkpoint-11.superseded", "", 11);
  checkpoint("checkpoint-x", "", 12);
  fs::create_directories(folder_ / "checkpoint-13");
  EXPECT_EQ(find_checkpoints(folder_.path()),
            (std::vector<fs::path>{folder_ / "checkpoint-1", folder_ / "checkpoint-9", folder_ / "checkpoint-10",
                                   folder_ / "checkpoint-100"}));
}

TEST_F(Leftovers, RotationRemovesTheOldestBeyondTheLimit) {
  for (const std::int64_t step : {8, 9, 10, 11, 12}) of_step(step);
  fs::remove(folder_ / "checkpoint-12/state");  // damaged, so it neither counts nor is removed
  rotate_checkpoints(folder_.path(), {.limit = 2, .keep = {"checkpoint-8"}});
  EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-11", "checkpoint-12", "checkpoint-8"));
  rotate_checkpoints(folder_.path(), {.limit = 0, .keep = {"checkpoint-11"}});
  EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-11", "checkpoint-12"));
}

TEST_F(Leftovers, RotationLeavesOutWhatItIsToldIsDamaged) {
  for (const std::int64_t step : {3, 5, 10}) of_step(step);
  rotate_checkpoints(folder_.path(), {.limit = 2, .keep = {"checkpoint-5"}, .damaged = {"checkpoint-10"}});
  EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-10", "checkpoint-3", "checkpoint-5"));
  rotate_checkpoints(folder_.path(), {.limit = 1, .keep = {"checkpoint-5"}, .damaged = {"checkpoint-10"}});
  EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-10", "checkpoint-5"));
}

TEST_F(Leftovers, CheckpointsOfAnEarlierRunAreSetAside) {
  for (const std::int64_t step : {9, 10}) of_step(step);
  checkpoint("checkpoint-10.superseded", "of a run before", 10);
  fs::create_directories(folder_ / "notes.superseded");
  EXPECT_EQ(set_aside_checkpoints(folder_.path()), 2);
  EXPECT_TRUE(find_checkpoints(folder_.path()).empty());
  EXPECT_EQ(superseded_checkpoints(folder_.path()),
            (std::vector<fs::path>{folder_ / "checkpoint-9.superseded", folder_ / "checkpoint-10.superseded",
                                   folder_ / "checkpoint-10.superseded.2"}));
  EXPECT_EQ(read_text(folder_ / "checkpoint-10.superseded/state"), "of a run before");
  EXPECT_EQ(read_text(folder_ / "checkpoint-10.superseded.2/state"), "");
}

TEST_F(Leftovers, ASaveSetsAsideWhatHasNoManifest) {
  fs::create_directories(folder_ / "checkpoint-8");
  write_file(folder_ / "checkpoint-8/state", "of another program");
  EXPECT_EQ(unsealed_checkpoints(folder_.path()), std::vector<fs::path>{folder_ / "checkpoint-8"});
  for (const char* text : {"first", "second"}) save(8, text);
  EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-8", "checkpoint-8.superseded"));
  EXPECT_EQ(kept(), "second");
  EXPECT_EQ(read_text(folder_ / "checkpoint-8.superseded/state"), "of another program");
  EXPECT_TRUE(unsealed_checkpoints(folder_.path()).empty());
}

TEST_F(Leftovers, ASaveSetsAsideFilesAndLinksOfItsName) {
  write_file(folder_ / "checkpoint-8", "a file");
  fs::create_symlink("nowhere", folder_ / "checkpoint-9");
  for (const std::int64_t step : {8, 9}) save(step, "saved");
  EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-8", "checkpoint-8.superseded", "checkpoint-9",
                                              "checkpoint-9.superseded"));
  EXPECT_EQ(kept(), "saved");
}

TEST_F(Leftovers, OfASaveThatFailsThereAreNone) {
  of_step(8);
  const auto fails = [](const fs::path& folder) {
    write_file(folder / "state", "x");
    fail(ErrorKind::disk, {.cause = "full"});
  };
  for (const auto save : {save_sealed, save_sealed_into}) {
    EXPECT_THROW(save({.target = folder_ / "checkpoint-8", .step = 8, .write = fails}), Error);
    EXPECT_THAT(names(), ::testing::ElementsAre("checkpoint-8"));
    EXPECT_THAT(sealed_files(folder_ / "checkpoint-8"), ::testing::ElementsAre("state"));
    EXPECT_EQ(kept(), "");
  }
}

TEST_F(Leftovers, AFinalModelOfTwoRunsHasNoManifest) {
  const auto save = [&](const char* text) {
    save_sealed_into({.target = folder_.path(), .step = 3, .write = [&](const fs::path& folder) {
                        write_file(folder / "adapter_config.json", text);
                        write_file(folder / "adapter_model.safetensors", text);
                      }});
  };
  save("first");
  fs::remove(folder_ / "adapter_model.safetensors");
  fs::create_directories(folder_ / "adapter_model.safetensors/in_the_way");
  EXPECT_THROW(save("second"), Error);
  EXPECT_EQ(read_text(folder_ / "adapter_config.json"), "second");
  EXPECT_FALSE(fs::exists(folder_ / kManifest));
}

TEST_F(Leftovers, ANewFinalModelReplacesTheOldOneAndNoOtherFile) {
  const auto save = [&](const std::vector<std::string>& files) {
    save_sealed_into({.target = folder_.path(), .step = 3, .write = [&](const fs::path& folder) {
                        fs::create_directories(folder / "templates");
                        for (const std::string& file : files) write_file(folder / file, files.front());
                      }});
    EXPECT_EQ(check_manifest(folder_.path(), ManifestCheck::hashes, Beside::anything), 3);
    EXPECT_EQ(sealed_files(folder_.path()).size(), files.size());
  };
  write_file(folder_ / "notes.json", "mine");
  save({"model.safetensors", "config.json", "templates/tools.jinja"});
  save({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"});
  EXPECT_FALSE(fs::exists(folder_ / "model.safetensors")) << "readers would take it for the model";
  save({"adapter_model.safetensors"});
  EXPECT_TRUE(fs::exists(folder_ / "model.safetensors.index.json")) << "perhaps the base model of the adapter";
  EXPECT_EQ(read_text(folder_ / "config.json"), "model.safetensors");
  EXPECT_EQ(read_text(folder_ / "templates/tools.jinja"), "model.safetensors");
  EXPECT_EQ(read_text(folder_ / "notes.json"), "mine");
  EXPECT_FALSE(fs::exists(folder_ / ".final.tmp"));
}

}  // namespace
}  // namespace qtrain
