#pragma once
#include <cstdint>

namespace qtrain {

/// How several sources become one: concatenated, or interleaved as datasets.interleave_datasets does it.
enum class MixStrategy : std::uint8_t {
  concatenate,
  first_exhausted,                    ///< until the first source has no further row
  all_exhausted,                      ///< until every source was used up once; small ones begin again
  all_exhausted_without_replacement,  ///< the same, but every row once
};

}  // namespace qtrain
