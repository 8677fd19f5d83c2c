#include "emulator/ptx/counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/emulator/ptx/made_up.h"
#include "tests/errors.h"

/// The counts of kernels written in PTX, compared with what GPUs do: banks as in the CUDA C++ Programming Guide,
/// "Shared Memory", sectors as in the documentation of Nsight Compute.
namespace qtrain::testing {
namespace {

using emulation::Order;
using emulation::ptx::CountedLaunch;
using emulation::ptx::Counting;
using emulation::ptx::Counts;
using emulation::ptx::Kind;
using ::testing::ElementsAre;

constexpr std::size_t kWords = 4096;

/// The counts of one launch. %r1 is the lane, %x1 the address of 4,096 words; there are 8 KiB of shared memory.
Counts counts_of(const std::string& body, unsigned threads = 32) {
  Counting counting;
  words_of("mov.u32 %r1, %laneid;\n" + body, kWords, {.blocks = {}, .threads = {threads, 1, 1}, .shared_bytes = 8192});
  const std::vector<CountedLaunch> launches = counting.take();
  EXPECT_EQ(launches.size(), 1u);
  return launches.at(0).counts;
}

/// An instruction whose address is `stride` bytes times the lane, plus `first`.
struct Strided {
  const char* instruction;
  unsigned stride, first = 0;
  std::uint64_t least, beyond;  ///< wavefronts and conflicts, or sectors

  std::string shared() const {
    return "mad.lo.s32 %r2, %r1, " + std::to_string(stride) + ", " + std::to_string(first) + ";\n" + instruction;
  }
  std::string global() const {
    return "mul.lo.s32 %r2, %r1, " + std::to_string(stride) +
           ";\ncvt.u64.u32 %x2, %r2;\nadd.s64 %x2, %x2, %x1;\nadd.s64 %x2, %x2, " + std::to_string(first) + ";\n" +
           instruction;
  }
};
void PrintTo(const Strided& s, std::ostream* out) {
  *out << s.instruction << " every " << s.stride << " bytes from " << s.first;
}

class SharedAccess : public ::testing::TestWithParam<Strided> {};
TEST_P(SharedAccess, TakesAPassForEachWordOfABank) {
  const Counts c = counts_of(GetParam().shared());
  EXPECT_EQ(c.wavefronts, GetParam().least + GetParam().beyond);
  EXPECT_EQ(c.conflicts, GetParam().beyond);
  EXPECT_EQ(c.sectors, 0u);
}
constexpr const char *kLoad = "ld.shared.u32 %r3, [%r2];", *kPair = "ld.shared.v2.u32 {%r3, %r4}, [%r2];",
                     *kFour = "st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};";
INSTANTIATE_TEST_SUITE_P(
    Ptx, SharedAccess,
    ::testing::Values(Strided{kLoad, 4, 0, 1, 0}, Strided{kLoad, 8, 0, 1, 1}, Strided{kLoad, 16, 4, 1, 3},
                      Strided{kLoad, 128, 0, 1, 31}, Strided{kLoad, 132, 0, 1, 0}, Strided{kLoad, 0, 64, 1, 0},
                      Strided{"ld.shared.u8 %r3, [%r2];", 1, 0, 1, 0}, Strided{kLoad, 12, 0, 1, 0},
                      Strided{kPair, 8, 0, 2, 0}, Strided{kPair, 16, 0, 2, 2},
                      Strided{"st.shared.u64 [%r2], %x1;", 8, 0, 2, 0}, Strided{kFour, 16, 0, 4, 0},
                      Strided{kFour, 32, 0, 4, 4}, Strided{kFour, 128, 0, 4, 28}, Strided{kFour, 144, 0, 4, 0},
                      // Only half of the lanes take part, in two of the four groups.
                      Strided{"setp.lt.u32 %p1, %r1, 16;\n@%p1 st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};", 16, 0, 2,
                              0},
                      Strided{"setp.lt.u32 %p1, %r1, 0;\n@%p1 st.shared.u32 [%r2], %r1;", 4, 0, 0, 0}));

/// Shared memory, all of it zeros.
const std::string kZeros =
    "mul.lo.s32 %r3, %r1, 16;\nmov.u32 %r4, 0;\n$ZERO:\nst.shared.v4.u32 [%r3], {%r4, %r4, %r4, %r4};\n"
    "add.s32 %r3, %r3, 512;\nsetp.lt.u32 %p1, %r3, 8192;\n@%p1 bra $ZERO;\nbar.warp.sync -1;\n";

/// The passes of ldmatrix whose rows are `stride` bytes apart.
Counts matrices(const std::string& instruction, unsigned stride) {
  const std::string row = "mul.lo.s32 %r2, %r1, " + std::to_string(stride) + ";\n";
  const Counts before = counts_of(kZeros + row), all = counts_of(kZeros + row + instruction);
  return {.wavefronts = all.wavefronts - before.wavefronts, .conflicts = all.conflicts - before.conflicts};
}
TEST(PtxCounts, MatricesTakeAPassEachIfTheirRowsAreInDifferentBanks) {
  const std::string four = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r2];";
  const std::string one = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r2];";
  EXPECT_EQ(matrices(four, 16), (Counts{.wavefronts = 4}));
  EXPECT_EQ(matrices(four, 80), (Counts{.wavefronts = 4}));
  EXPECT_EQ(matrices(four, 64), (Counts{.wavefronts = 16, .conflicts = 12}));
  EXPECT_EQ(matrices(four, 128), (Counts{.wavefronts = 32, .conflicts = 28}));
  EXPECT_EQ(matrices(one, 128), (Counts{.wavefronts = 8, .conflicts = 7}));
}

class GlobalAccess : public ::testing::TestWithParam<Strided> {};
TEST_P(GlobalAccess, TouchesSectorsOf32Bytes) {
  const Counts c = counts_of(GetParam().global());
  EXPECT_EQ(c.sectors, GetParam().least + GetParam().beyond);
  EXPECT_EQ(c.excess_sectors, GetParam().beyond);
  EXPECT_EQ(c.wavefronts, 0u);
}
constexpr const char* kRead = "ld.global.u32 %r3, [%x2];";
INSTANTIATE_TEST_SUITE_P(Ptx, GlobalAccess,
                         ::testing::Values(Strided{kRead, 4, 0, 4, 0}, Strided{kRead, 4, 4, 4, 1},
                                           Strided{kRead, 8, 0, 4, 4}, Strided{kRead, 32, 0, 4, 28},
                                           Strided{kRead, 512, 0, 4, 28}, Strided{kRead, 0, 8, 1, 0},
                                           Strided{"ld.global.nc.u8 %r3, [%x2];", 1, 0, 1, 0},
                                           Strided{"ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%x2];", 16, 0, 16, 0},
                                           Strided{"ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%x2];", 32, 0, 16, 16},
                                           Strided{"st.global.f64 [%x2], 0d3FF0000000000000;", 8, 0, 8, 0},
                                           Strided{"atom.global.add.u32 %r3, [%x2], 1;", 4, 0, 4, 0}));

TEST(PtxCounts, BytesAreThoseThatLanesAskFor) {
  EXPECT_EQ(counts_of(Strided{kRead, 0, 8}.global()).global_bytes, 128u);
  EXPECT_EQ(counts_of(Strided{"ld.global.v2.u32 {%r3, %r4}, [%x2];", 8}.global(), 40).global_bytes, 320u);
}

TEST(PtxCounts, AsynchronousCopiesReadSectorsAndWriteBanks) {
  const std::string copy = "mul.lo.s32 %r2, %r1, 16;\ncvt.u64.u32 %x2, %r2;\nadd.s64 %x2, %x2, %x1;\n";
  const std::string wait = "cp.async.commit_group;\ncp.async.wait_group 0;\n";
  Counts c = counts_of(copy + "cp.async.cg.shared.global [%r2], [%x2], 16;\n" + wait);
  EXPECT_EQ(c.global_bytes, 512u);
  EXPECT_THAT((std::vector{c.sectors, c.excess_sectors, c.wavefronts, c.conflicts}), ElementsAre(16, 0, 4, 0));
  EXPECT_EQ(c.of(Kind::async_copy), 1u);
  EXPECT_EQ(c.of(Kind::barrier), 2u);
  c = counts_of(copy + "cp.async.cg.shared.global [%r2], [%x2], 16, 0;\n" + wait);
  EXPECT_THAT((std::vector{c.global_bytes, c.sectors, c.wavefronts}), ElementsAre(0, 0, 4));
  c = counts_of(copy + "mul.lo.s32 %r2, %r1, 128;\ncp.async.ca.shared.global [%r2], [%x2], 4;\n" + wait, 32);
  EXPECT_THAT((std::vector{c.sectors, c.excess_sectors, c.wavefronts}), ElementsAre(16, 12, 32));
}

TEST(PtxCounts, WarpsExecuteAnInstructionOnceForAllTheirLanes) {
  const std::string body = "add.f32 %f1, 0f3F800000, 0f3F800000;\nadd.s32 %r2, %r1, 1;\nadd.s32 %r2, %r2, 1;\n";
  for (const auto& [threads, warps] : {std::pair{1u, 1u}, {32u, 1u}, {33u, 2u}, {256u, 8u}}) {
    const Counts c = counts_of(body, threads);
    EXPECT_EQ(c.of(Kind::float_arithmetic), warps);
    EXPECT_EQ(c.of(Kind::integer), 2 * warps);
    EXPECT_EQ(c.of(Kind::branch), warps) << "ret";
    EXPECT_EQ(c.total(), 6 * warps) << "two moves: the parameter and the lane";
  }
}

TEST(PtxCounts, BothSidesOfABranchCountIfLanesTakeBoth) {
  const auto body = [](const char* bound) {
    return "setp.lt.u32 %p1, %r1, " + std::string(bound) +
           ";\n@%p1 bra $LESS;\nmul.lo.s32 %r2, %r1, 3;\nbra $END;\n$LESS:\nmul.lo.s32 %r2, %r1, 5;\n$END:\n"
           "add.s32 %r2, %r2, 1;\n";
  };
  EXPECT_EQ(counts_of(body("0")).of(Kind::integer), 3u);
  EXPECT_EQ(counts_of(body("32")).of(Kind::integer), 3u);
  EXPECT_EQ(counts_of(body("9")).of(Kind::integer), 4u);
}

TEST(PtxCounts, ALoopTakesAsManyRoundsAsItsLongestLane) {
  EXPECT_EQ(counts_of("and.b32 %r2, %r1, 3;\n$AGAIN:\nadd.f32 %f1, 0f3F800000, 0f3F800000;\nsub.s32 %r2, %r2, 1;\n"
                      "setp.ge.s32 %p1, %r2, 0;\n@%p1 bra $AGAIN;\n")
                .of(Kind::float_arithmetic),
            4u);
}

// In the first round of the outer loop, odd lanes take three rounds of the inner one and even lanes one; in the second
// round, it is the other way around. Every lane takes four, but lanes wait for others before the next round.
TEST(PtxCounts, LanesWaitForOthersAfterEachLoop) {
  const std::string loops =
      "and.b32 %r2, %r1, 1;\nmov.u32 %r3, 0;\n"
      "$OUTER:\nshl.b32 %r4, %r2, 1;\n"
      "$INNER:\nadd.f32 %f1, 0f3F800000, 0f3F800000;\nsub.s32 %r4, %r4, 1;\nsetp.ge.s32 %p1, %r4, 0;\n"
      "@%p1 bra $INNER;\n"
      "xor.b32 %r2, %r2, 1;\nadd.s32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, 2;\n@%p2 bra $OUTER;\n";
  EXPECT_EQ(counts_of(loops).of(Kind::float_arithmetic), 6u);
}

// The first lane that goes on comes to the same place again while the others have not gone on yet.
TEST(PtxCounts, LanesMeetAtTheSamePlaceAgain) {
  const Counts c = counts_of(
      "mov.u32 %r3, 0;\n$AGAIN:\nadd.f32 %f1, 0f3F800000, 0f3F800000;\nshfl.sync.bfly.b32 %r6|%p3, %r3, 1, 31, -1;\n"
      "add.s32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, 5;\n@%p2 bra $AGAIN;\n");
  EXPECT_EQ(c.of(Kind::float_arithmetic), 5u);
  EXPECT_EQ(c.of(Kind::shuffle), 5u);
  EXPECT_EQ(c.of(Kind::integer), 10u);
}

TEST(PtxCounts, LanesMayLeaveBeforeOthersMeet) {
  const Counts c = counts_of(
      "setp.ge.u32 %p1, %r1, 8;\n@%p1 ret;\nmov.u32 %r3, 0;\n$AGAIN:\nadd.f32 %f1, 0f3F800000, 0f3F800000;\n"
      "vote.sync.ballot.b32 %r2, 1, 255;\nadd.s32 %r3, %r3, 1;\nsetp.lt.u32 %p2, %r3, 5;\n@%p2 bra $AGAIN;\n");
  EXPECT_EQ(c.of(Kind::float_arithmetic), 5u);
  EXPECT_EQ(c.of(Kind::shuffle), 5u);
  EXPECT_EQ(c.of(Kind::branch), 7u) << "two returns";
}

/// Every kind of meeting, between lanes and warps that take different ways.
const std::string kMeetings =
    "mov.u32 %r1, %laneid;\n" + kZeros +
    "mov.u32 %r5, 0;\n$AGAIN:\nand.b32 %r2, %r1, 3;\n$SHORT:\nadd.f32 %f1, 0f3F800000, 0f3F800000;\n"
    "sub.s32 %r2, %r2, 1;\nsetp.ge.s32 %p1, %r2, 0;\n@%p1 bra $SHORT;\n"
    "shfl.sync.bfly.b32 %r6|%p3, %r5, 1, 31, -1;\nshfl.sync.bfly.b32 %r6|%p3, %r6, 2, 31, -1;\n"
    "bar.sync 0;\nadd.s32 %r5, %r5, 1;\nsetp.lt.u32 %p2, %r5, 3;\n@%p2 bra $AGAIN;\n";

TEST(PtxCounts, DoNotDependOnTheOrderOfThreads) {
  const emulation::Settings before = emulation::settings();
  const Counts want = counts_of(kMeetings);
  EXPECT_EQ(want.of(Kind::float_arithmetic), 12u);
  EXPECT_EQ(want.of(Kind::shuffle), 6u);
  for (const Order order : {Order::reverse, Order::random})
    for (const int host_threads : {1, 2}) {
      emulation::settings().order = order;
      emulation::settings().host_threads = host_threads;
      EXPECT_EQ(counts_of(kMeetings), want);
    }
  emulation::settings() = before;
}

TEST(PtxCounts, AreTheSumOverAllBlocks) {
  const auto of_blocks = [](unsigned blocks) {
    Counting counting;
    words_of(kMeetings, 1, {.blocks = {blocks, 1, 1}, .threads = {32, 1, 1}, .shared_bytes = 8192});
    return counting.take().at(0).counts;
  };
  const Counts one = of_blocks(1);
  Counts sum;
  for (int n = 0; n < 12; ++n) sum += one;
  EXPECT_EQ(of_blocks(12), sum);
}

TEST(PtxCounts, ChangeNothingOfWhatAKernelComputes) {
  const std::string body =
      "mov.u32 %r1, %tid.x;\nmul.wide.u32 %x2, %r1, 4;\nadd.s64 %x3, %x1, %x2;\n"
      "shfl.sync.bfly.b32 %r2|%p1, %r1, 3, 31, -1;\nst.global.u32 [%x3], %r2;";
  const std::vector<std::uint32_t> want = words_of(body, 64, 64);
  Counting counting;
  EXPECT_EQ(words_of(body, 64, 64), want);
  const std::vector<CountedLaunch> launches = counting.take();
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_EQ(launches[0].name, "kernel");
  EXPECT_EQ(launches[0].kernel, "kernel");
  EXPECT_TRUE(counting.take().empty());
}

TEST(PtxCounts, OnlyOneCanExist) {
  const Counting counting;
  EXPECT_THAT(test::error_of(ErrorKind::internal, [] { const Counting second; }),
              ::testing::HasSubstr("launches are already counted"));
}

TEST(PtxKinds, FollowFromTheMnemonic) {
  const auto kind = [](const char* mnemonic) { return emulation::ptx::traits_of(mnemonic).kind; };
  EXPECT_EQ(kind("fma.rn.f32"), Kind::float_arithmetic);
  EXPECT_EQ(kind("setp.lt.f32"), Kind::float_arithmetic);
  EXPECT_EQ(kind("setp.lt.u32"), Kind::integer);
  EXPECT_EQ(kind("selp.f32"), Kind::integer);
  EXPECT_EQ(kind("div.s32"), Kind::integer);
  EXPECT_EQ(kind("div.rn.f32"), Kind::special);
  EXPECT_EQ(kind("ex2.approx.ftz.f32"), Kind::special);
  EXPECT_EQ(kind("cvt.rn.bf16x2.f32"), Kind::conversion);
  EXPECT_EQ(kind("cvta.to.global.u64"), Kind::move);
  EXPECT_EQ(kind("bar.red.popc.u32"), Kind::barrier);
  EXPECT_EQ(kind("bra.uni"), Kind::branch);
  EXPECT_EQ(kind("brev.b32"), Kind::integer);
  EXPECT_EQ(kind("st.local.u32"), Kind::local);
  EXPECT_EQ(kind("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), Kind::mma);
}

}  // namespace
}  // namespace qtrain::testing
