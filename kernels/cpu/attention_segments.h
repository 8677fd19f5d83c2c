#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace qtrain::ops {

/// Tokens [begin, end) of one segment.
struct Segment {
  std::int64_t begin, end;

  std::int64_t size() const { return end - begin; }
};

/// The non-empty segments named by cu_seqlens, checked to lie in order within T tokens.
inline std::vector<Segment> segments_of(ConstTensor cu_seqlens, std::int64_t T) {
  std::vector<Segment> segments;
  const auto cu = cu_seqlens.span<std::int32_t>();
  for (std::size_t i = 0; i + 1 < cu.size(); ++i) {
    check(cu[i] >= 0 && cu[i] <= cu[i + 1] && cu[i + 1] <= T, "attention: cu_seqlens must rise from 0 to T");
    if (cu[i] < cu[i + 1]) segments.push_back({cu[i], cu[i + 1]});
  }
  return segments;
}

/// First key that query i sees in its segment.
inline std::int64_t first_key(std::int64_t i, std::int64_t segment_begin, std::int64_t window) {
  return window > 0 ? std::max(segment_begin, i - window + 1) : segment_begin;
}
/// One past the last query that sees key j.
inline std::int64_t last_query(std::int64_t j, std::int64_t segment_end, std::int64_t window) {
  return window > 0 ? std::min(segment_end, j + window) : segment_end;
}

}  // namespace qtrain::ops
