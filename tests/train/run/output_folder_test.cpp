#include "train/run/output_folder.h"

#include <gmock/gmock.h>

#include <vector>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OutputFolders : public ::testing::Test {
 protected:
  fs::path sealed(const fs::path& folder, std::int64_t step) const {
    fs::create_directories(folder);
    write_file(folder / "state", "x");
    write_manifest(folder, step);
    return folder;
  }
  fs::path checkpoint(std::int64_t step) const {
    return sealed(folder_ / ("out/checkpoint-" + std::to_string(step)), step);
  }
  OutputFolder open() { return OutputFolder(folder_ / "out", OutputFolder::Role::leads, log_); }
  bool is_sealed() const { return fs::exists(folder_ / "out" / kManifest); }

  TempFolder folder_;
  Log log_{LogLevel::silent};
};

TEST_F(OutputFolders, ARunGoesOnFromTheNewestOrFromTheOneThatIsNamed) {
  const fs::path first = checkpoint(2), second = checkpoint(10);
  const OutputFolder output = open();
  const ResumeFrom newest = output.resume_from("auto"), never = output.resume_from("never"),
                   named = output.resume_from(first.string());
  EXPECT_THAT(newest.checkpoints, ElementsAre(second, first));
  EXPECT_FALSE(newest.named);
  EXPECT_THAT(never.checkpoints, IsEmpty());
  EXPECT_TRUE(never.named);
  EXPECT_THAT(named.checkpoints, ElementsAre(first));
  EXPECT_TRUE(named.named);
}

TEST_F(OutputFolders, WhatIsNotOfTheRunIsSetAside) {
  checkpoint(2), checkpoint(4), checkpoint(6);
  const OutputFolder output = open();
  output.set_aside_after(4);
  EXPECT_THAT(output.resume_from("auto").checkpoints,
              ElementsAre(folder_ / "out/checkpoint-4", folder_ / "out/checkpoint-2"));
  EXPECT_TRUE(fs::exists(folder_ / "out/checkpoint-6.superseded"));
  output.start_over();
  EXPECT_THAT(output.resume_from("auto").checkpoints, IsEmpty());
}

TEST_F(OutputFolders, HoldTheirOwnCheckpointsByWhateverNameTheyHave) {
  const fs::path own = checkpoint(2), other = sealed(folder_ / "elsewhere/checkpoint-2", 2);
  const OutputFolder output = open();
  EXPECT_TRUE(output.holds(own));
  EXPECT_TRUE(output.holds(own / ""));
  EXPECT_TRUE(output.holds(folder_ / "elsewhere/../out/checkpoint-2"));
  EXPECT_FALSE(output.holds(other));
}

TEST_F(OutputFolders, AFinalModelStaysThatOfTheRunOnlyWhereItGoesOnBehindIt) {
  struct Case {
    const char* name;
    std::optional<fs::path> resumed;
    std::int64_t step;
    bool stays;
  };
  const fs::path own = checkpoint(8), other = sealed(folder_ / "elsewhere/checkpoint-8", 8);
  const OutputFolder output = open();
  for (const Case& c : {Case{"started over", {}, 0, false},
                        {"from before the result", own, 4, false},
                        {"from the step of the result", own, 6, true},
                        {"from behind it", own, 8, true},
                        {"from another folder", other, 8, false}}) {
    sealed(folder_ / "out", 6);
    output.disown_result({.step = c.step, .resumed = c.resumed});
    EXPECT_EQ(is_sealed(), c.stays) << c.name;
  }
}

}  // namespace
}  // namespace qtrain
