#pragma once
#include <cstdint>

namespace qtrain {

/// How several sources become one: concatenated, or interleaved like datasets.interleave_datasets.
enum class MixStrategy : std::uint8_t {
  concatenate,
  first_exhausted,                    ///< until the first source is exhausted
  all_exhausted,                      ///< until every source was used up once; small ones start over
  all_exhausted_without_replacement,  ///< likewise, but each row only once
};

}  // namespace qtrain
