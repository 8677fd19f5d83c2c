#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/emulator/ptx/made_up.h"
#include "tests/errors.h"

/// Kernels written in PTX behave as the PTX manual describes.
namespace qtrain::testing {
namespace {

using ::testing::HasSubstr;

std::string fault_of(const std::string& body, unsigned threads = 1) {
  return test::error_of([&] { words_of(body, 8, threads); }).what();
}

struct Computed {
  const char* instruction;  ///< its result is in %r1, %f1, %x2 or %d1
  std::uint64_t bits;
};
void PrintTo(const Computed& c, std::ostream* out) {
  *out << c.instruction;
}
class Instruction : public ::testing::TestWithParam<Computed> {};

TEST_P(Instruction, ComputesWhatTheManualSays) {
  const std::string text = GetParam().instruction;
  const bool predicate = text.find("%p1") != text.npos;
  std::string store = "st.global.b32 [%x1], %r1;";
  if (text.find(" %f1,") != text.npos) store = "st.global.f32 [%x1], %f1;";
  if (text.find(" %x2,") != text.npos) store = "st.global.b64 [%x1], %x2;";
  if (text.find(" %d1,") != text.npos) store = "st.global.f64 [%x1], %d1;";
  if (predicate) store = "selp.b32 %r1, 1, 0, %p1;\n" + store;
  const auto words = words_of(text + "\n" + store, 2);
  EXPECT_EQ(words[0] | std::uint64_t{words[1]} << 32, GetParam().bits);
}

INSTANTIATE_TEST_SUITE_P(
    Ptx, Instruction,
    ::testing::Values(
        Computed{"add.s32 %r1, 2147483647, 1;", 0x80000000u}, Computed{"sub.s32 %r1, 3, 5;", 0xfffffffeu},
        Computed{"mul.lo.s32 %r1, 65536, 65537;", 65536}, Computed{"mul.hi.u32 %r1, -1, -1;", 0xfffffffeu},
        Computed{"mul.hi.s32 %r1, -1, 2;", 0xffffffffu}, Computed{"mul.wide.s32 %x2, -3, 5;", ~std::uint64_t{14}},
        Computed{"mul.wide.u32 %x2, -1, 2;", 0x1fffffffeu}, Computed{"mad.lo.s32 %r1, 7, -3, 1;", 0xffffffecu},
        Computed{"div.s32 %r1, -7, 2;", 0xfffffffdu}, Computed{"rem.s32 %r1, -7, 2;", 0xffffffffu},
        Computed{"div.u32 %r1, -7, 2;", 0x7ffffffcu}, Computed{"min.s32 %r1, -1, 1;", 0xffffffffu},
        Computed{"min.u32 %r1, -1, 1;", 1}, Computed{"max.f32 %f1, 0f7FC00000, 0fBF800000;", 0xbf800000u},
        Computed{"neg.s32 %r1, 1;", 0xffffffffu}, Computed{"neg.f32 %f1, 0f00000000;", 0x80000000u},
        Computed{"abs.s32 %r1, -5;", 5}, Computed{"copysign.f32 %f1, 0fBF800000, 0f40000000;", 0xc0000000u},
        Computed{"shl.b32 %r1, 1, 32;", 0}, Computed{"shl.b64 %x2, 1, 33;", std::uint64_t{1} << 33},
        Computed{"shr.s32 %r1, -8, 40;", 0xffffffffu}, Computed{"shr.u32 %r1, -8, 28;", 15},
        Computed{"brev.b32 %r1, 3;", 0xc0000000u}, Computed{"bfind.shiftamt.u32 %r1, 16;", 27},
        Computed{"bfind.shiftamt.u32 %r1, 0;", 0xffffffffu}, Computed{"bfe.u32 %r1, 0x12345678, 8, 12;", 0x456},
        Computed{"bfe.u32 %r1, -1, 28, 32;", 15}, Computed{"bfe.u32 %r1, -1, 32, 4;", 0},
        Computed{"bfe.u32 %r1, -1, 4, 0;", 0},
        Computed{"mad.lo.s64 %x2, 4294967297, -3, 1;", ~std::uint64_t{0x300000001}},
        Computed{"bfi.b32 %r1, 255, 0, 4, 6;", 0x3f0},
        Computed{"bfi.b64 %x2, 5, 8, 32, 32;", std::uint64_t{5} << 32 | 8},
        Computed{"prmt.b32 %r1, 0x44332211, 0x88776655, 0x0527;", 0x11663388u},
        Computed{"prmt.b32 %r1, 0x44332211, 0x88776655, 0x8f00;", 0x00ff1111u},
        // 0.1f * 0.1f lies between two floats.
        Computed{"fma.rm.f32 %f1, 0f3DCCCCCD, 0f3DCCCCCD, 0f00000000;", 0x3c23d70au},
        Computed{"fma.rn.f32 %f1, 0f3F800001, 0f3F800001, 0fBF800002;", 0x28800000u},
        Computed{"setp.lt.f32 %p1, 0f7FC00000, 0f3F800000;", 0},
        Computed{"setp.ltu.f32 %p1, 0f7FC00000, 0f3F800000;", 1},
        Computed{"setp.ne.f32 %p1, 0f7FC00000, 0f3F800000;", 0},
        Computed{"setp.neu.f32 %p1, 0f7FC00000, 0f7FC00000;", 1},
        Computed{"setp.nan.f32 %p1, 0f3F800000, 0f7FC00000;", 1}, Computed{"setp.lt.s32 %p1, -1, 1;", 1},
        Computed{"setp.lt.u32 %p1, -1, 1;", 0}, Computed{"cvt.rzi.s32.f32 %r1, 0fCF800000;", 0x80000000u},
        Computed{"cvt.rzi.s32.f32 %r1, 0f7FC00000;", 0}, Computed{"cvt.rzi.s32.f32 %r1, 0fBFC00000;", 0xffffffffu},
        Computed{"cvt.rni.f32.f32 %f1, 0f40200000;", 0x40000000u},
        Computed{"cvt.sat.f32.f32 %f1, 0f40000000;", 0x3f800000u}, Computed{"cvt.sat.f32.f32 %f1, 0f7FC00000;", 0},
        Computed{"cvt.s64.s32 %x2, -2;", ~std::uint64_t{1}}, Computed{"cvt.u64.u32 %x2, -2;", 0xfffffffeu},
        Computed{"cvt.f64.f32 %d1, 0f3FC00000;", 0x3ff8000000000000u},
        Computed{"cvt.rn.bf16x2.f32 %r1, 0f3F800000, 0f40000000;", 0x3f804000u},
        Computed{"cvt.rn.f16x2.f32 %r1, 0f3F800000, 0f40000000;", 0x3c004000u},
        Computed{"mov.b32 {%h1, %h2}, 0x12345678;\nmov.b32 %r1, {%h2, %h1};", 0x56781234u},
        Computed{"mov.b64 %x2, {1, 2};", std::uint64_t{2} << 32 | 1}, Computed{"mov.u32 %r1, memory;", 0}));

TEST(PtxThreads, KnowWhichTheyAre) {
  const auto words = words_of(
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ntid.x;\nmad.lo.s32 %r3, %r1, 100, %r2;\nmul.wide.u32 %x2, %r1, 4;\n"
      "add.s64 %x3, %x1, %x2;\nst.global.u32 [%x3], %r3;",
      3, 3);
  EXPECT_THAT(words, ::testing::ElementsAre(3, 103, 203));
}

// Segments of 8 lanes: c is 0x1807, which is a clamp of 7 and a mask of 24.
TEST(PtxThreads, GetValuesOfOtherLanesWithinTheirSegment) {
  const auto lanes = [](const std::string& shuffle) {
    return words_of("mov.u32 %r1, %laneid;\n" + shuffle +
                        "\nselp.b32 %r3, 100, 0, %p1;\nadd.s32 %r3, %r3, %r2;\nmul.wide.u32 %x2, %r1, 4;\n"
                        "add.s64 %x3, %x1, %x2;\nst.global.u32 [%x3], %r3;",
                    32, 32);
  };
  const auto up = lanes("shfl.sync.up.b32 %r2|%p1, %r1, 3, 0x1800, -1;");
  const auto down = lanes("shfl.sync.down.b32 %r2|%p1, %r1, 3, 0x1807, -1;");
  const auto index = lanes("shfl.sync.idx.b32 %r2|%p1, %r1, 13, 0x1807, -1;");
  const auto butterfly = lanes("shfl.sync.bfly.b32 %r2|%p1, %r1, 8, 0x1807, -1;");
  for (std::uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(up[l], l % 8 >= 3 ? 100 + l - 3 : l) << l;
    EXPECT_EQ(down[l], l % 8 < 5 ? 100 + l + 3 : l) << l;
    EXPECT_EQ(index[l], 100 + l / 8 * 8 + 5) << l;
    EXPECT_EQ(butterfly[l], l % 16 >= 8 ? 100 + l - 8 : l) << l;
  }
}

TEST(PtxFaults, NameRegistersWithoutAValueAndTheLine) {
  const std::string store = "\n.loc 1 77 5\nst.global.u32 [%x1], %r1;";
  EXPECT_THAT(fault_of(store), ::testing::AllOf(HasSubstr("uses register %r1, which has no value"),
                                                HasSubstr("made_up.cu:77"), HasSubstr("kernel kernel")));
  EXPECT_THAT(fault_of("add.s32 %r1, %r2, 1;" + store), HasSubstr("uses register %r1"));
  EXPECT_THAT(fault_of("selp.b32 %r1, 1, %r2, 0;" + store), HasSubstr("uses register %r1"));
  EXPECT_THAT(fault_of("@%p1 bra $L;\n$L:"), HasSubstr("%p1, which has no value"));
  EXPECT_THAT(fault_of("ld.shared.u32 %r1, [memory];" + store), HasSubstr("uses register %r1"));
  EXPECT_EQ(words_of("selp.b32 %r1, 5, %r2, 1;" + store, 1)[0], 5u) << "the side without a value is not taken";
}

TEST(PtxFaults, NameBadAddresses) {
  EXPECT_THAT(fault_of("ld.global.v2.u32 {%r1, %r2}, [%x1+4];"), HasSubstr("misaligned: accesses 8 bytes"));
  EXPECT_THAT(fault_of("st.global.u32 [%x1+32], 1;"), HasSubstr("out of bounds"));
  EXPECT_THAT(fault_of("st.shared.u32 [memory+64], 1;"), HasSubstr("out of bounds"));
  EXPECT_THAT(fault_of("mov.u64 %x2, depot;\nst.local.u32 [%x2+8], 1;"), HasSubstr("bytes from 8 of 8"));
  EXPECT_THAT(fault_of("st.global.u32 [%x1], 1;", 2), HasSubstr("race"));
}

TEST(PtxPrograms, PointersMayTellTheAlignmentOfTheirMemory) {
  std::string text = kernel_of("");
  const std::string type = ".param .u64 ";
  text.insert(text.find(type) + type.size(), ".ptr .align 1 ");
  const emulation::ptx::Program program = emulation::ptx::parse(text, "kernel.ptx");
  EXPECT_EQ(program.functions.at("kernel").parameter_bytes, 8u);
}

TEST(PtxPrograms, BlocksHaveRegistersOfTheirOwn) {
  EXPECT_EQ(words_of("mov.u32 %r1, 7;\n{\n.reg .b32 %r1;\nmov.u32 %r1, 8;\n}\nst.global.u32 [%x1], %r1;", 1)[0], 7u);
}

TEST(PtxPrograms, WhatIsNotKnownIsRefusedWithItsLine) {
  const auto refused = [](const std::string& body) {
    return test::error_if_any(ErrorKind::input, [&] { emulation::ptx::parse(kernel_of(body), "kernel.ptx"); });
  };
  EXPECT_THAT(refused("tanh.approx.f32 %f1, %f2;"),
              ::testing::AllOf(HasSubstr("kernel.ptx:18"), HasSubstr("unknown instruction tanh.approx.f32")));
  EXPECT_THAT(refused("mov.u32 %r1, %r10;"), HasSubstr("unknown register %r10"));
  EXPECT_THAT(refused("bra $L_9;"), HasSubstr("unknown label $L_9"));
  EXPECT_THAT(refused("mov.u32 %r1, 0z1;"), HasSubstr("'0z1'"));
  EXPECT_THAT(refused(".shared .b8 own[4];"), HasSubstr(".shared"));
  const std::string whole = kernel_of("mov.u32 %r1, 1;");
  for (std::size_t end = whole.find(".entry") + 7; end < whole.rfind('}'); end += 7)
    EXPECT_NE(test::error_if_any(ErrorKind::input, [&] { emulation::ptx::parse(whole.substr(0, end), "cut.ptx"); }),
              "no error")
        << end;
}

}  // namespace
}  // namespace qtrain::testing
