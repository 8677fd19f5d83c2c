#pragma once
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// An input error about a row, without its place.
[[noreturn]] void bad_row(std::string cause, std::string remedy = "");

/// Whether the row has a value of this key that is not null; `is_filled`: and neither an empty text nor an empty list.
bool row_has(const Json& row, std::string_view key);
bool is_filled(const Json& row, std::string_view key);

/// Columns and parts of messages that are no text: "image", "images", "audio", ...
bool is_media(std::string_view name);
/// An input error for a row with images, sound or video.
void refuse_media(const Json& row);

/// An input error for a row of training on preferences, where one answer is better than another. `shape`: the name of
/// the shape that it has otherwise, "" for none.
void refuse_preferences(const Json& row, std::string_view shape);

/// What to write into a config for a row of no known shape whose columns tell by their names what they hold; "" if they
/// do not.
std::string mapping_for(const Json& row);

}  // namespace qtrain
