#pragma once
#include <cstdint>
#include <vector>

#include "core/context.h"

namespace qtrain::testing {

/// The first keys of tiles of 128 keys in the order in which blocks take them, for documents with these boundaries and
/// a window (0: none).
std::vector<int> order_of_tiles(Ctx& ctx, const std::vector<std::int32_t>& boundaries, int window);

}  // namespace qtrain::testing
