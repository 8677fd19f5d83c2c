#pragma once
#include <cstdint>
#include <vector>

#include "core/context.h"

namespace qtrain::testing {

using Words = std::vector<std::uint32_t>;
using Reals = std::vector<float>;

/// The registers of a warp's lanes, lane by lane.
struct Fragments {
  Words a, b;  ///< 4 and 2 per lane
  Reals c;     ///< 4 per lane
};
enum class MmaType : std::uint8_t { bf16, f16 };
/// d = a b + c in one instruction: 4 values per lane.
Reals multiply(Ctx& ctx, MmaType kind, const Fragments& in);

enum class Layout : std::uint8_t { plain, transposed };
/// `count` matrices of 8 rows of 8 16-bit values from shared memory: `count` registers per lane.
Words load_matrices(Ctx& ctx, int count, Layout layout, const std::vector<std::uint16_t>& rows);

/// Copies x to shared memory in chunks of `bytes` by the lanes of a warp, taking `taken` bytes of each.
struct Chunks {
  int bytes, taken;
};
Words copy_chunks(Ctx& ctx, Chunks chunks, const Words& x);

/// What lane l receives if it holds l, for each of several exchanges.
std::vector<std::vector<int>> exchanged(Ctx& ctx);

/// The sum of thread numbers by atomics, the largest thread number, and how many threads exchanged 0 for 1.
std::vector<int> counted(Ctx& ctx, int blocks);

}  // namespace qtrain::testing
