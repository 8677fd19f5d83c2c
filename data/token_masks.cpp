#include "data/token_masks.h"

#include "data/token_rows.h"

namespace qtrain {

std::vector<bool> tokens_in(const Tokenizer::Encoding& encoding, const TextRanges& ranges) {
  std::vector<bool> inside(encoding.ids.size());
  std::size_t range = 0;
  for (std::size_t t = 0; t < inside.size(); ++t) {
    const auto [begin, end] = encoding.offsets[t];
    while (range < ranges.size() && ranges[range].second <= begin) ++range;
    inside[t] = range < ranges.size() && end > ranges[range].first && end > begin;
  }
  return inside;
}

void mask_where_not(std::vector<std::int32_t>& labels, const std::vector<bool>& keep) {
  for (std::size_t t = 0; t < keep.size(); ++t)
    if (!keep[t]) labels[t] = kNoTarget;
}

}  // namespace qtrain
