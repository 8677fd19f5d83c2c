#include "core/arena.h"

#include <gtest/gtest.h>

namespace qtrain {
namespace {

TEST(Arena, TakesWhatWasPlannedAndNoMore) {
  const std::size_t before = allocated_bytes(DeviceKind::cpu).now;
  {
    Arena arena("test");
    arena.take(DType::f32, {10});
    arena.take(DType::bf16, {3, 5});
    EXPECT_EQ(arena.planned(), 128u);
    EXPECT_EQ(allocated_bytes(DeviceKind::cpu).now, before) << "measuring takes no memory";
    arena.commit();
    EXPECT_EQ(allocated_bytes(DeviceKind::cpu).now, before + 128);
    EXPECT_NE(arena.take(DType::f32, {32}).data, nullptr);
    EXPECT_THROW(arena.take(DType::f32, {1}), Error);
  }
  EXPECT_EQ(allocated_bytes(DeviceKind::cpu).now, before);
  EXPECT_GE(allocated_bytes(DeviceKind::cpu).peak, before + 128);
}

TEST(Arena, TakesNothingForNothing) {
  const std::size_t before = allocated_bytes(DeviceKind::cpu).now;
  Arena arena("test");
  arena.commit();
  EXPECT_TRUE(arena.committed());
  EXPECT_EQ(allocated_bytes(DeviceKind::cpu).now, before);
}

TEST(Arena, PinnedMemoryIsTheHosts) {
  Arena arena("test", Device{.kind = DeviceKind::cuda}, Placement::pinned);
  const Tensor t = arena.take(DType::f32, {10});
  EXPECT_EQ(t.device.kind, DeviceKind::cpu);
  EXPECT_EQ(arena.planned(), 64u);
}

}  // namespace
}  // namespace qtrain
