#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace qtrain::ops {

/// The keys [begin, end) of one segment; its queries are [first_query, end).
struct Segment {
  std::int64_t begin, first_query, end;

  std::int64_t size() const { return end - begin; }
  std::int64_t queries() const { return end - first_query; }
};

/// The tokens that are queries: [first, first + count).
struct QueryRange {
  std::int64_t first, count;
};

/// The parts of the segments in cu_seqlens that the queries see, without segments that have no queries. Checks that
/// cu_seqlens is ascending within T tokens.
inline std::vector<Segment> segments_of(ConstTensor cu_seqlens, std::int64_t T, const QueryRange& queries) {
  std::vector<Segment> segments;
  const auto cu = cu_seqlens.span<std::int32_t>();
  for (std::size_t i = 0; i + 1 < cu.size(); ++i) {
    check(cu[i] >= 0 && cu[i] <= cu[i + 1] && cu[i + 1] <= T, "attention: cu_seqlens must rise from 0 to T");
    const Segment s{cu[i], std::max<std::int64_t>(cu[i], queries.first),
                    std::min<std::int64_t>(cu[i + 1], queries.first + queries.count)};
    if (s.queries() > 0) segments.push_back(s);
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
