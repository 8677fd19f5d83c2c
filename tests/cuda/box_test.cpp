#include <gtest/gtest.h>

#include "tests/cuda/box_kernels.h"
#include "tests/cuda/schedules.h"
#include "tests/cuda/swizzle.h"

/// Copies of boxes, with the layout taken from the table of the PTX manual; no code is shared with the kernels or the
/// harness.
namespace qtrain::testing {
namespace {

std::vector<std::uint16_t> box_by_table(const BoxTask& t) {
  std::vector<std::uint16_t> elements;
  for (int z = t.at[2]; z < t.at[2] + t.box[1]; ++z)
    for (int y = t.at[1]; y < t.at[1] + t.box[0]; ++y) {
      const auto row = elements.size() / 64;
      for (int place = 0; place < 8; ++place)
        for (int e = 0; e < 8; ++e) {
          const int x = t.at[0] + 8 * kSwizzled[row % 8][place] + e;
          const bool exists = x >= 0 && x < t.extents[0] && y >= 0 && y < t.extents[1] && z >= 0 && z < t.extents[2];
          elements.push_back(static_cast<std::uint16_t>(exists ? (z * t.extents[1] + y) * t.extents[0] + x : 0));
        }
    }
  return elements;
}

TEST(Ptx, CopiesBoxesInTheLayoutOfTheTable) {
  if (cuda_info(kCuda.index).major != 9) GTEST_SKIP() << "boxes are copied only on GPUs of compute capability 9.0";
  const BoxTask tasks[] = {
      {.extents = {64, 1, 16}, .box = {1, 16}, .at = {0, 0, 0}},     // all of a tensor
      {.extents = {128, 3, 40}, .box = {1, 32}, .at = {64, 2, 5}},   // one of several heads
      {.extents = {128, 2, 20}, .box = {1, 16}, .at = {0, 1, 10}},   // rows beyond the last
      {.extents = {128, 2, 20}, .box = {1, 8}, .at = {64, 1, -3}},   // rows before the first
      {.extents = {72, 5, 6}, .box = {4, 3}, .at = {16, 2, 4}},      // columns and both other dimensions
      {.extents = {64, 1, 300}, .box = {1, 256}, .at = {0, 0, 40}},  // the largest box
  };
  for (const BoxTask& task : tasks)
    for_each_schedule([&] {
      Ctx ctx(kCuda, MatmulPrecision::storage, 1);
      EXPECT_EQ(copied_box(ctx, task), box_by_table(task)) << task.extents[0] << " " << task.at[2];
    });
}

}  // namespace
}  // namespace qtrain::testing
