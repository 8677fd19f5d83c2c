#pragma once

namespace qtrain::testing {

/// "128B swizzling" (PTX manual): where the 16-byte chunks 0 to 7 of the rows 0 to 7 of an atom are. Taken from its
/// figure; chunk and place can be exchanged.
inline constexpr int kSwizzled[8][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 3, 2, 5, 4, 7, 6}, {2, 3, 0, 1, 6, 7, 4, 5},
                                        {3, 2, 1, 0, 7, 6, 5, 4}, {4, 5, 6, 7, 0, 1, 2, 3}, {5, 4, 7, 6, 1, 0, 3, 2},
                                        {6, 7, 4, 5, 2, 3, 0, 1}, {7, 6, 5, 4, 3, 2, 1, 0}};

}  // namespace qtrain::testing
