// What interrupted saves and removals leave in an output folder.
#include <gmock/gmock.h>

#include "core/file.h"
#include "tests/core/temp_folder.h"
#include "train/checkpoint.h"
#include "train/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;
using qtrain::testing::TempFolder;

class Leftovers : public ::testing::Test {
 protected:
  /// A whole checkpoint of step 8 that holds this text.
  fs::path checkpoint(const char* name, const char* text) const {
    fs::create_directories(folder_ / name);
    write_file(folder_ / name / "state", text);
    write_manifest(folder_ / name, 8);
    return folder_ / name;
  }
  void clear(const fs::path& named = "auto") {
    Log silent(LogLevel::silent);
    clear_leftovers(folder_.path(), named, silent);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.push_back(entry.path().filename());
    return names;
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

}  // namespace
}  // namespace qtrain
