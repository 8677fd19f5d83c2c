#include "kernels/gemm_choices.h"

#include <gmock/gmock.h>

#include <thread>

#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain::testing {
namespace {

namespace fs = std::filesystem;
using Algorithm = GemmChoices::Algorithm;
using ::testing::Optional;

constexpr Algorithm kOne{1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}, kOther{9};

class SharedChoices : public ::testing::Test {
 protected:
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache"))
      if (entry.path().extension() == ".json") found.push_back(entry.path());
    return found;
  }
  GemmChoices choices(const std::string& made_by = "A GPU, library 13") const { return {made_by, folder_ / "cache"}; }

  TempFolder folder_;
};

TEST_F(SharedChoices, AreFoundByTheNextRunOfTheSameGpuAndLibrary) {
  {
    GemmChoices first = choices();
    EXPECT_EQ(first.find("m1"), std::nullopt);
    first.remember("m1", kOne);
    EXPECT_THAT(first.find("m1"), Optional(kOne));
  }
  EXPECT_THAT(choices().find("m1"), Optional(kOne));
  EXPECT_EQ(choices("A GPU, library 14").find("m1"), std::nullopt);
}

// Each write is two fsyncs.
TEST_F(SharedChoices, AreWrittenOnceAtTheEnd) {
  {
    GemmChoices run = choices();
    for (int i = 0; i < 9; ++i) run.remember("m" + std::to_string(i), kOne);
    EXPECT_FALSE(fs::exists(folder_ / "cache"));
  }
  ASSERT_EQ(files().size(), 1u);
  const fs::path file = files().front();
  fs::remove(file);
  { EXPECT_EQ(choices().find("m1"), std::nullopt); }
  EXPECT_FALSE(fs::exists(file)) << "nothing was new";
}

TEST_F(SharedChoices, OfRunsBesideEachOtherAreAllKept) {
  constexpr int kRuns = 12;
  {
    std::vector<std::thread> runs;
    for (int i = 0; i < kRuns; ++i)
      runs.emplace_back([this, i] {
        GemmChoices run = choices();
        run.remember("m" + std::to_string(i), kOne);
        run.share();
      });
    for (std::thread& run : runs) run.join();
  }
  GemmChoices all = choices();
  for (int i = 0; i < kRuns; ++i) EXPECT_THAT(all.find("m" + std::to_string(i)), Optional(kOne)) << i;
}

// Other runs have already computed with the earlier choice, and may resume.
TEST_F(SharedChoices, WhoComesLaterReplacesNone) {
  {
    GemmChoices later = choices();
    later.remember("m1", kOther);
    GemmChoices earlier = choices();
    earlier.remember("m1", kOne);
    earlier.share();
    EXPECT_THAT(later.find("m1"), Optional(kOther)) << "a run keeps its own choice";
  }
  EXPECT_THAT(choices().find("m1"), Optional(kOne));
}

TEST_F(SharedChoices, OfADamagedFileAreDoneWithout) {
  { choices().remember("m1", kOne); }
  const fs::path file = files().front();
  for (const char* text : {"", "{\"made_by\": \"A GPU", "[]", R"({"choices": {"m1": [1, 2]}})",
                           R"({"choices": {"m1": [1, 2, 3, 4, 5, 6, 7, -8]}})"}) {
    write_file(file, text);
    EXPECT_EQ(choices().find("m1"), std::nullopt) << text;
  }
  { choices().remember("m2", kOne); }
  EXPECT_THAT(choices().find("m2"), Optional(kOne)) << "the file is written again";
}

TEST_F(SharedChoices, AFolderThatCannotBeWrittenIsDoneWithout) {
  write_file(folder_ / "cache", "a file");
  GemmChoices run = choices();
  run.remember("m1", kOne);
  run.share();
  EXPECT_THAT(run.find("m1"), Optional(kOne));
}

TEST(RestoredChoices, ComeBeforeThoseThatAreShared) {
  const TempFolder folder;
  Json used;
  {
    GemmChoices run("A GPU", folder / "one");
    run.remember("m1", kOne);
    run.remember("m2", kOne);
    used = run.used();
  }
  {
    GemmChoices other("A GPU", folder / "other");
    other.remember("m1", kOther);
    other.remember("m3", kOther);
  }
  GemmChoices resumed("A GPU", folder / "other");
  EXPECT_TRUE(resumed.restore(used, "the file"));
  EXPECT_THAT(resumed.find("m1"), Optional(kOne));
  EXPECT_THAT(resumed.find("m2"), Optional(kOne));
  EXPECT_THAT(resumed.find("m3"), Optional(kOther));
  // The used choices are the restored ones and those found since.
  GemmChoices again("A GPU", {});
  EXPECT_TRUE(again.restore(resumed.used(), "the file"));
  EXPECT_EQ(again.used(), resumed.used());
  EXPECT_EQ(again.used().at("choices").size(), 3u);
}

TEST(RestoredChoices, HoldTheChoicesThatWereUsedAlone) {
  const TempFolder folder;
  {
    GemmChoices run("A GPU", folder.path());
    run.remember("m1", kOne);
    run.remember("m2", kOne);
  }
  GemmChoices run("A GPU", folder.path());
  run.find("m2");
  EXPECT_EQ(run.used().at("choices"), Json({{"m2", kOne}}));
}

// The size classes and the selection rules may change: names written under other rules mean other GEMMs.
TEST(RestoredChoices, UnderOtherRulesAreLeftAlone) {
  GemmChoices run("A GPU", {});
  run.remember("m1", kOne);
  Json used = run.used();
  const std::string made_by = used["made_by"];
  ASSERT_THAT(made_by, ::testing::MatchesRegex("A GPU, rules [0-9]+"));
  for (const std::string& other : {std::string("A GPU"), made_by + "0"}) {
    used["made_by"] = other;
    GemmChoices resumed("A GPU", {});
    EXPECT_FALSE(resumed.restore(used, "the file")) << other;
    EXPECT_EQ(resumed.find("m1"), std::nullopt) << other;
  }
}

TEST(RestoredChoices, OfAnotherGpuAreLeftAlone) {
  GemmChoices run("A GPU", {});
  run.remember("m1", kOne);
  GemmChoices other("Another GPU", {});
  EXPECT_FALSE(other.restore(run.used(), "the file"));
  EXPECT_EQ(other.find("m1"), std::nullopt);
}

TEST(RestoredChoices, AreRefusedWhereTheyAreNone) {
  for (const Json& damaged :
       {Json(), Json::array(), Json{{"made_by", "A GPU"}}, Json{{"made_by", "A GPU"}, {"choices", {{"m1", {1, 2}}}}},
        Json{{"made_by", 1}, {"choices", Json::object()}}}) {
    GemmChoices run("A GPU", {});
    const Error error = error_of([&] { run.restore(damaged, "the file"); });
    EXPECT_EQ(error.kind(), ErrorKind::input) << damaged;
    EXPECT_EQ(error.text().place, "the file");
  }
}

TEST(RestoredChoices, AreRefusedAfterTheFirstGemm) {
  GemmChoices run("A GPU", {});
  const Json used = run.used();
  EXPECT_TRUE(run.restore(used, ""));
  run.find("m1");
  EXPECT_EQ(error_of([&] { run.restore(used, ""); }).kind(), ErrorKind::internal);
}

TEST(GemmChoicesOf, AProcessorAreNone) {
  Ctx ctx;
  EXPECT_EQ(gemm_choices(ctx), nullptr);
}

}  // namespace
}  // namespace qtrain::testing
