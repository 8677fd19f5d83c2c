#include "tests/emulator/ptx/count_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/os/file.h"

namespace qtrain::testing {
namespace {

using emulation::ptx::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kBaseline = std::filesystem::path(QTRAIN_SOURCE_DIR) / "bench/baselines/cuda_counts.csv";
const std::filesystem::path kPage = std::filesystem::path(QTRAIN_SOURCE_DIR) / "docs/kernels/counts.md";

CountTable some_table() {
  CountTable table{"nvcc 13.0.88 for sm_90a",
                   {{.task = "add/8", .kernel = "for_elements<8, Add<float>>", .launches = 2},
                    {.task = "add/9", .kernel = "for_elements<1, Add<float>>", .launches = 1}}};
  table.rows[0].counts.of(Kind::integer) = 1000;
  table.rows[0].counts.conflicts = 3;
  table.rows[1].counts.sectors = 7;
  return table;
}

TEST(CountTable, IsReadAsItIsWritten) {
  const std::string csv = csv_of(some_table());
  EXPECT_THAT(csv, HasSubstr("# nvcc 13.0.88 for sm_90a\ncase,kernel,launches,global_loads,"));
  EXPECT_THAT(csv, HasSubstr("add/8,\"for_elements<8, Add<float>>\",2,0,"));
  EXPECT_EQ(table_of(csv), some_table());
}

TEST(CountTable, AddsUpTheLaunchesOfAKernel) {
  emulation::ptx::Counts one;
  one.sectors = 5;
  const std::vector<CountRow> rows = rows_of("case", {{"op", "b", one}, {"op", "a", one}, {"op", "b", one}});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].kernel, "b");
  EXPECT_EQ(rows[0].launches, 2u);
  EXPECT_EQ(rows[0].counts.sectors, 10u);
  EXPECT_EQ(rows[1].launches, 1u);
}

TEST(CountTable, TellsWhatGrewByMoreThan3Percent) {
  const CountTable before = some_table();
  CountTable now = before;
  EXPECT_THAT(growth(before, now), IsEmpty());
  now.rows[0].counts.of(Kind::integer) = 1030;
  now.rows[0].counts.conflicts = 0;
  EXPECT_THAT(growth(before, now), IsEmpty());
  now.rows[0].counts.of(Kind::integer) = 1031;
  EXPECT_THAT(growth(before, now), ElementsAre("add/8, for_elements<8, Add<float>>: integer from 1000 to 1031"));
  now = before;
  now.rows[1].counts.conflicts = 1;
  EXPECT_THAT(growth(before, now), ElementsAre("add/9, for_elements<1, Add<float>>: conflicts from 0 to 1"));
}

TEST(CountTable, TellsWhichKernelsAreNewOrGone) {
  CountTable now = some_table();
  now.rows[1].kernel = "another";
  EXPECT_THAT(growth(some_table(), now), ElementsAre("add/9, another: not in the baseline",
                                                     "add/9, for_elements<1, Add<float>>: only in the baseline"));
}

TEST(CountTable, OfThePageIsThatOfTheBaseline) {
  const CountTable baseline = table_of(read_text(kBaseline));
  EXPECT_GT(baseline.rows.size(), 40u);
  const std::string page = read_text(kPage);
  EXPECT_EQ(page, with_table(page, baseline)) << "scripts/ptx_tests.py --write_counts writes both";
}

}  // namespace
}  // namespace qtrain::testing
