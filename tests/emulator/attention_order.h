#pragma once
#include <cstdint>
#include <vector>

#include "core/context.h"

namespace qtrain::testing {

/// Documents with these boundaries and a window (0: none).
struct Documents {
  std::vector<std::int32_t> boundaries;
  int window = 0;
  int padding = 0;  ///< tokens of no document behind the last one
};

/// The first keys of tiles of 128 keys in the order in which blocks take them; -1 for numbers without a tile.
std::vector<int> order_of_tiles(Ctx& ctx, const Documents& documents);

struct Tokens {
  int begin, end;
};
struct NumberedTiles {
  std::vector<Tokens> tiles;  ///< by number, below the largest number that a tile can have
  int begin, end;             ///< numbers that DocumentTiles says are in use
};
/// Tiles of 64 queries, which are the tokens from `first` to before `end`.
NumberedTiles tiles_of(Ctx& ctx, const Documents& documents, Tokens queries);

}  // namespace qtrain::testing
