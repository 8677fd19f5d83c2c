#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/emulator/ptx/made_up.h"
#include "tests/errors.h"

/// Registers of asynchronous products: accumulators %a0 to %a31 and %b0 to %b31, and rows of A in %q0 to %q3.
namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;

const std::string kFence = "wgmma.fence.sync.aligned;\n", kCommit = "wgmma.commit_group.sync.aligned;\n";

std::string wait(int pending) {
  return fmt::format("wgmma.wait_group.sync.aligned {};\n", pending);
}
std::string accumulators(const std::string& name, int first = 0) {
  std::string list;
  for (int i = first; i < first + 32; ++i) list += fmt::format("{}%{}{}", i == first ? "" : ", ", name, i);
  return "{" + list + "}";
}
/// d = q b, or d += q b.
std::string product(const std::string& d, bool adds = true) {
  return fmt::format(
      "setp.ne.b32 %p1, {}, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {}, "
      "{{%q0, %q1, %q2, %q3}}, %x3, %p1, 1, 1, 0;\n",
      adds ? 1 : 0, d);
}

/// A warpgroup that has filled shared memory, its rows and its accumulators with zeros.
std::string prepared(const std::string& body) {
  std::string text =
      ".reg .f32 %a<33>, %b<32>, %c<32>;\n.reg .b32 %q<4>;\nmov.u32 %r1, %tid.x;\nshl.b32 %r1, %r1, 6;\n"
      "mov.u32 %r2, memory;\nadd.s32 %r2, %r2, %r1;\nmov.b64 %x3, 0x4000004000010000;\n";
  for (int at = 0; at < 64; at += 16) text += fmt::format("st.shared.v4.b32 [%r2+{}], {{0, 0, 0, 0}};\n", at);
  text += "fence.proxy.async.shared::cta;\nbar.sync 0;\n";
  for (int i = 0; i < 32; ++i) text += fmt::format("mov.f32 %a{0}, 0f00000000;\nmov.f32 %b{0}, 0f00000000;\n", i);
  text += "mov.f32 %a32, 0f00000000;\n";
  for (int i = 0; i < 4; ++i) text += fmt::format("mov.b32 %q{}, 0;\n", i);
  return text + body;
}
std::string fault_of_products(const std::string& body) {
  return test::error_if_any(ErrorKind::internal, [&] {
    words_of(prepared(body), 1, {.blocks = {}, .threads = {128, 1, 1}, .shared_bytes = 8192});
  });
}

TEST(PtxProducts, RegistersAreInUseUntilTheWait) {
  const std::string started = kFence + product(accumulators("a")) + kCommit;
  EXPECT_EQ(fault_of_products(started + wait(0) + "add.f32 %f1, %a0, %a1;\nmov.f32 %a2, %f1;\nmov.b32 %q0, 1;"),
            "no error");
  EXPECT_THAT(fault_of_products(started + "add.f32 %f1, %b0, %a31;" + wait(0)),
              HasSubstr("too early: uses register %a31, which a product of wgmma still uses"));
  EXPECT_THAT(fault_of_products(started + "mov.f32 %a0, %b0;" + wait(0)), HasSubstr("too early: changes register %a0"));
  EXPECT_THAT(fault_of_products(started + "add.s32 %r3, %q3, 1;" + wait(0)), HasSubstr("too early: uses register %q3"));
  EXPECT_THAT(fault_of_products(started + "mov.b32 %q1, 1;" + wait(0)), HasSubstr("too early: changes register %q1"));
}

TEST(PtxProducts, AWaitIsForTheGroupsThatItNames) {
  const std::string two =
      kFence + product(accumulators("a")) + kCommit + product(accumulators("b")) + kCommit + wait(1);
  EXPECT_EQ(fault_of_products(two + "mov.f32 %a0, %a1;\n" + wait(0)), "no error");
  EXPECT_THAT(fault_of_products(two + "mov.f32 %a0, %b1;\n" + wait(0)), HasSubstr("too early: uses register %b1"));
  EXPECT_THAT(fault_of_products(two + "mov.b32 %q0, 0;\n" + wait(0)), HasSubstr("too early: changes register %q0"));
  EXPECT_THAT(fault_of_products(two), HasSubstr("that nobody waited for"));
}

TEST(PtxProducts, AFenceComesBetweenOtherInstructionsAndProducts) {
  const std::string more = product(accumulators("a")) + kCommit + wait(0);
  EXPECT_EQ(fault_of_products(kFence + more + more), "no error");
  EXPECT_THAT(fault_of_products(more), HasSubstr("used since the last wgmma.fence"));
  EXPECT_THAT(fault_of_products(kFence + "mov.f32 %a5, %b0;\n" + more),
              HasSubstr("multiplies with register %a5, used since the last wgmma.fence"));
  EXPECT_THAT(fault_of_products(kFence + more + "add.f32 %f1, %a7, %a7;\n" + more),
              HasSubstr("register %a7, used since"));
  EXPECT_THAT(fault_of_products(kFence + "mov.b32 %q2, 0;\n" + more), HasSubstr("register %q2, used since"));
}

TEST(PtxProducts, AccumulateInTheSameOrOtherRegisters) {
  const std::string first = kFence + product(accumulators("a"));
  EXPECT_EQ(fault_of_products(first + product(accumulators("a")) + kCommit + wait(0)), "no error");
  EXPECT_THAT(fault_of_products(first + product(accumulators("a", 1)) + kCommit + wait(0)),
              HasSubstr("too early: accumulates in register %a1"));
}

TEST(PtxProducts, AddOnlyToValues) {
  EXPECT_EQ(fault_of_products(kFence + product(accumulators("c"), false) + kCommit + wait(0)), "no error");
  EXPECT_THAT(fault_of_products(kFence + product(accumulators("c")) + kCommit + wait(0)),
              HasSubstr("uninitialized: adds to register %c0"));
}

}  // namespace
}  // namespace qtrain::testing
