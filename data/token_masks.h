#pragma once
#include <cstdint>
#include <vector>

#include "text/template/rendered.h"
#include "text/tokenizer/tokenizer.h"

namespace qtrain {

/// Whether each token overlaps one of the byte ranges, which are in order.
std::vector<bool> tokens_in(const Tokenizer::Encoding& encoding, const TextRanges& ranges);

/// Masks the labels of tokens that are not kept. `keep` may be shorter; the rest stays.
void mask_where_not(std::vector<std::int32_t>& labels, const std::vector<bool>& keep);

}  // namespace qtrain
