#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// A row of JSON that is none by the letter: it holds NaN or an infinity, a number out of range, or a key twice, as
/// Python writes and reads it. Columns with such values become doubts, which nobody can read by mistake; other columns
/// are whole. None if more is wrong with it. `place` is where it stands.
std::optional<Json> doubtful_row(std::string_view text, const std::string& place);

/// What is wrong with the column that a doubt stands for; "" of any other value.
std::string doubt_of(const Json& value);

}  // namespace qtrain
