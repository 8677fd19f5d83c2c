#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// Parses a row that is not strict JSON, but that Python reads and writes: NaN, infinities, numbers out of range, or
/// duplicate keys. Columns with such values become doubts, which cannot be used by mistake; other columns are intact.
/// None if more is wrong with the row.
std::optional<Json> doubtful_row(std::string_view text, const std::string& place);

/// What is wrong with a column that is a doubt; "" for any other value.
std::string doubt_of(const Json& value);

}  // namespace qtrain
