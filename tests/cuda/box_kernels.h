#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "core/context.h"

namespace qtrain::testing {

/// A copy of a box of a tensor [z, y, x] of 16-bit elements, whose element i has the bits i: boxes have rows of 64
/// elements.
struct BoxTask {
  std::array<int, 3> extents;  ///< x, y, z; x is a multiple of 8
  std::array<int, 2> box;      ///< y, z
  std::array<int, 3> at;       ///< x, y, z of its first element
};
/// What shared memory contains then: 64 elements for each row of the box.
std::vector<std::uint16_t> copied_box(Ctx& ctx, const BoxTask& task);

}  // namespace qtrain::testing
