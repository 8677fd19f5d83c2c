#include "tests/cuda/ptx_kernels.h"

#include <gtest/gtest.h>

#include "core/half.h"
#include "tests/cuda/schedules.h"

/// One test for each PTX instruction that kernels use in addition to C++, according to the PTX manual.
namespace qtrain::testing {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// Small integers, which every format represents exactly.
float a_of(int row, int k) {
  return static_cast<float>((row * 5 + k * 3) % 13 - 6);
}
float b_of(int k, int column) {
  return static_cast<float>((column * 7 + k * 5) % 11 - 5);
}
float c_of(int row, int column) {
  return static_cast<float>(row * 8 + column);
}

std::uint32_t bits(MmaType kind, float x) {
  return kind == MmaType::bf16 ? Bf16(x).bits : F16(x).bits;
}

/// PTX manual, "Matrix Fragments for mma.m16n8k16 with floating point type".
Fragments fragments(MmaType kind) {
  Fragments f{.a = Words(128), .b = Words(64), .c = Reals(128)};
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, in_group = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
      const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
      f.a[at(4 * lane + i / 2)] |= bits(kind, a_of(row, column)) << (i & 1 ? 16 : 0);
    }
    for (int i = 0; i < 4; ++i) {
      const int row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
      f.b[at(2 * lane + i / 2)] |= bits(kind, b_of(row, group)) << (i & 1 ? 16 : 0);
    }
    for (int i = 0; i < 4; ++i) f.c[at(4 * lane + i)] = c_of(i < 2 ? group : group + 8, in_group * 2 + (i & 1));
  }
  return f;
}

Ctx make_ctx() {
  return Ctx(kCuda, MatmulPrecision::storage, 1);
}

TEST(Ptx, MultipliesFragments) {
  for (const MmaType kind : {MmaType::bf16, MmaType::f16}) {
    Ctx ctx = make_ctx();
    const Reals d = multiply(ctx, kind, fragments(kind));
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int row = (lane >> 2) + (i < 2 ? 0 : 8), column = lane % 4 * 2 + (i & 1);
        float want = c_of(row, column);
        for (int k = 0; k < 16; ++k) want += a_of(row, k) * b_of(k, column);
        EXPECT_EQ(d[at(4 * lane + i)], want) << static_cast<int>(kind) << " " << row << " " << column;
      }
  }
}

TEST(Ptx, MatricesFromSharedMemory) {
  for (const int count : {1, 2, 4})
    for (const Layout layout : {Layout::plain, Layout::transposed}) {
      std::vector<std::uint16_t> rows;
      for (int i = 0; i < count * 64; ++i) rows.push_back(static_cast<std::uint16_t>(1000 + i));
      Ctx ctx = make_ctx();
      const Words r = load_matrices(ctx, count, layout, rows);
      for (int lane = 0; lane < 32; ++lane)
        for (int m = 0; m < count; ++m)
          for (int h = 0; h < 2; ++h) {
            int row = lane / 4, column = lane % 4 * 2 + h;
            if (layout == Layout::transposed) std::swap(row, column);
            EXPECT_EQ(r[at(count * lane + m)] >> (16 * h) & 0xffff, rows[at(m * 64 + row * 8 + column)]);
          }
    }
}

TEST(Ptx, AsynchronousCopiesFillUpWithZeros) {
  for (const int bytes : {4, 8, 16})
    for (int taken = 0; taken <= bytes; taken += 4) {
      Words x;
      for (int i = 0; i < 32 * bytes / 4; ++i) x.push_back(static_cast<std::uint32_t>(77 + i));
      Words want = x;
      for (std::size_t i = 0; i < want.size(); ++i)
        if (static_cast<int>(i % at(bytes / 4)) * 4 >= taken) want[i] = 0;
      for_each_schedule([&] {
        Ctx ctx = make_ctx();
        EXPECT_EQ(copy_chunks(ctx, {.bytes = bytes, .taken = taken}, x), want) << bytes << " " << taken;
      });
    }
}

TEST(Ptx, ExchangesBetweenLanes) {
  for_each_schedule([] {
    Ctx ctx = make_ctx();
    const auto r = exchanged(ctx);
    for (int l = 0; l < 32; ++l) {
      EXPECT_EQ(r[0][at(l)], 5);
      EXPECT_EQ(r[1][at(l)], l / 8 * 8 + 1);
      EXPECT_EQ(r[2][at(l)], l ^ 3);
      EXPECT_EQ(r[3][at(l)], l + 3 < 32 ? l + 3 : l);
      EXPECT_EQ(r[4][at(l)], l % 16 >= 3 ? l - 3 : l);
      EXPECT_EQ(static_cast<std::uint32_t>(r[5][at(l)]), 0x49249249u);
      EXPECT_EQ(r[6][at(l)], 1);
      EXPECT_EQ(r[7][at(l)], 1);
      EXPECT_EQ(r[8][at(l)], l < 16 ? l ^ 1 : l);
    }
  });
}

TEST(Ptx, Atomics) {
  for_each_schedule([] {
    Ctx ctx = make_ctx();
    EXPECT_EQ(counted(ctx, 10), (std::vector<int>{319 * 320 / 2, 319, 1, 1}));
  });
}

}  // namespace
}  // namespace qtrain::testing
