#include <gtest/gtest.h>

#include <array>

#include "core/half.h"
#include "tests/cuda/schedules.h"
#include "tests/cuda/swizzle.h"
#include "tests/cuda/warpgroup_kernels.h"

/// Products of a warpgroup with operands laid out as in the PTX manual. The layouts are taken from its tables and
/// figures; no code is shared with the kernels or the harness.
namespace qtrain::testing {
namespace {

constexpr int kRows = 64, kDepth = 16, kThreadsOfGroup = 128;

/// "Matrix Descriptor Format": 128-byte swizzle is 1 in bits 62 and 63; bits 32 to 45 have the stride and bits 16 to 29
/// the leading dimension, both in units of 16 bytes, as has the address in bits 0 to 13.
constexpr std::uint64_t kAtomsBelow = 0x4000'0040'0001'0000;  ///< the next eight rows after 1,024 bytes
constexpr std::uint64_t kBlocksBetween =
    0x4000'00c0'0040'0000;  ///< the next columns after 1,024, the next rows after 3,072

/// Elements in the fragments of some threads, read from the figures: thread, register, row, column.
struct Held {
  int thread, index, row, column;
};
/// "WGMMA .m64nNk16 register fragment layout for accumulator matrix D".
constexpr Held kAccumulators[] = {{0, 0, 0, 0},      {0, 1, 0, 1},   {0, 2, 8, 0},   {0, 3, 8, 1},   {0, 4, 0, 8},
                                  {1, 0, 0, 2},      {3, 1, 0, 7},   {3, 7, 8, 15},  {4, 0, 1, 0},   {28, 0, 7, 0},
                                  {31, 3, 15, 7},    {32, 0, 16, 0}, {64, 0, 32, 0}, {96, 0, 48, 0}, {127, 3, 63, 7},
                                  {127, 31, 63, 63}, {0, 28, 0, 56}, {0, 29, 0, 57}, {0, 30, 8, 56}};
/// "WGMMA .m64nNk16 register fragment layout for matrix A": halves of registers.
constexpr Held kRowsOfA[] = {{0, 0, 0, 0},    {0, 1, 0, 1},    {0, 2, 8, 0},    {0, 3, 8, 1},   {0, 4, 0, 8},
                             {0, 5, 0, 9},    {0, 6, 8, 8},    {0, 7, 8, 9},    {3, 0, 0, 6},   {3, 7, 8, 15},
                             {4, 0, 1, 0},    {31, 1, 7, 7},   {31, 6, 15, 14}, {32, 0, 16, 0}, {64, 4, 32, 8},
                             {127, 0, 55, 6}, {127, 7, 63, 15}};

/// The same layouts as the manual's formulas.
Held accumulator(int thread, int i) {
  const int group = thread % 32 / 4;
  return {thread, i, thread / 32 * 16 + group + (i % 4 < 2 ? 0 : 8), i / 4 * 8 + thread % 4 * 2 + (i & 1)};
}
Held half_of_a(int thread, int i) {
  const int group = thread % 32 / 4;
  const bool lower = i == 2 || i == 3 || i == 6 || i == 7;
  return {thread, i, thread / 32 * 16 + group + (lower ? 8 : 0), thread % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}

float factor_a(int row, int k) {
  return static_cast<float>((row * 5 + k * 3) % 13 - 6);
}
float factor_b(int k, int column) {
  return static_cast<float>((column * 7 + k * 5) % 11 - 5);
}
float exact_product(int row, int column) {
  float sum = 0;
  for (int k = 0; k < kDepth; ++k) sum += factor_a(row, k) * factor_b(k, column);
  return sum;
}

/// What shared memory contains, in 16-bit elements.
class SharedImage {
 public:
  explicit SharedImage(MmaType type) : type_(type) {}
  void put(int byte, float x) { words_.at(static_cast<std::size_t>(byte / 4)) |= bits(x) << (byte % 4 * 8); }
  std::uint32_t bits(float x) const { return type_ == MmaType::bf16 ? Bf16(x).bits : F16(x).bits; }
  const Words& words() const { return words_; }

 private:
  MmaType type_;
  Words words_ = Words(6144);
};

/// Element k of row `row` of a matrix with contiguous rows of 64 elements.
int place_in_rows(int row, int k) {
  return row / 8 * 1024 + row % 8 * 128 + kSwizzled[row % 8][k / 8] * 16 + k % 8 * 2;
}
/// Element (k, n) of a matrix in whose blocks of 64 columns (or rows of the left operand) these are contiguous.
int place_in_columns(int k, int n) {
  return n / 64 * 1024 + k / 8 * 3072 + k % 8 * 128 + kSwizzled[k % 8][n % 64 / 8] * 16 + n % 8 * 2;
}

enum class OperandA : std::uint8_t { rows, columns, registers };
struct ProductForm {
  MmaType type;
  int columns;
  bool b_transposed;
  OperandA a;
  int slice;  ///< of 16 elements in rows of 64
};

WarpgroupTask task_of(const ProductForm& f) {
  constexpr int kB = 8192;
  SharedImage image(f.type);
  const bool a_transposed = f.a == OperandA::columns, a_in_registers = f.a == OperandA::registers;
  WarpgroupTask task{
      .type = f.type, .columns = f.columns, .a_transposed = a_transposed, .b_transposed = f.b_transposed};
  const int at = f.slice * kDepth;
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < kDepth; ++k)
      if (!a_in_registers)
        image.put(a_transposed ? place_in_columns(k, row) : place_in_rows(row, at + k), factor_a(row, k));
  for (int n = 0; n < f.columns; ++n)
    for (int k = 0; k < kDepth; ++k)
      image.put(kB + (f.b_transposed ? place_in_columns(k, n) : place_in_rows(n, at + k)), factor_b(k, n));
  const auto start = [](int byte) { return static_cast<std::uint64_t>(byte / 16); };
  task.a_matrix = a_transposed ? kBlocksBetween : kAtomsBelow + start(2 * at);
  task.b_matrix = f.b_transposed ? kBlocksBetween + start(kB) : kAtomsBelow + start(kB + 2 * at);
  task.memory = image.words();
  if (!a_in_registers) return task;
  task.a.resize(std::size_t{4} * kThreadsOfGroup);
  for (int thread = 0; thread < kThreadsOfGroup; ++thread) {
    for (int i = 0; i < 8; ++i) {
      const Held e = half_of_a(thread, i);
      task.a[static_cast<std::size_t>(4 * thread + i / 2)] |= image.bits(factor_a(e.row, e.column)) << (i % 2 * 16);
    }
    for (int i = 0; i < f.columns / 2; ++i) task.before.push_back(static_cast<float>(thread + i));
  }
  return task;
}

TEST(Warpgroup, LayoutsAreThoseOfTheFigures) {
  const auto same = [](const Held& a, const Held& b) { return a.row == b.row && a.column == b.column; };
  for (const Held& e : kAccumulators)
    EXPECT_TRUE(same(accumulator(e.thread, e.index), e)) << e.thread << " " << e.index;
  for (const Held& e : kRowsOfA) EXPECT_TRUE(same(half_of_a(e.thread, e.index), e)) << e.thread << " " << e.index;
}

TEST(Warpgroup, Multiplies) {
  if (cuda_info(kCuda.index).major != 9) GTEST_SKIP() << "only GPUs of compute capability 9.0 have warpgroups";
  for (const MmaType type : {MmaType::bf16, MmaType::f16})
    for (const int columns : {64, 128})
      for (const bool b_transposed : {false, true})
        for (const OperandA a : {OperandA::rows, OperandA::columns, OperandA::registers})
          for (const int slice : {0, 3}) {
            const WarpgroupTask task = task_of({type, columns, b_transposed, a, slice});
            for_each_schedule([&] {
              Ctx ctx(kCuda, MatmulPrecision::storage, 1);
              const Reals d = multiply_in_warpgroup(ctx, task);
              for (int i = 0; i < kThreadsOfGroup * columns / 2; ++i) {
                const auto at = static_cast<std::size_t>(i);
                const Held e = accumulator(i / (columns / 2), i % (columns / 2));
                const float before = a == OperandA::registers ? task.before[at] : 0;
                ASSERT_EQ(d[at], before + exact_product(e.row, e.column))
                    << static_cast<int>(type) << " " << columns << b_transposed << static_cast<int>(a) << " " << slice
                    << " " << e.row << " " << e.column;
              }
            });
          }
}

}  // namespace
}  // namespace qtrain::testing
