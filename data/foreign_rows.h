#pragma once
#include <string>
#include <string_view>

#include "core/formats/json.h"

namespace qtrain {

/// Throws ErrorKind::input about a row, without its place.
[[noreturn]] void bad_row(std::string cause, std::string remedy = "");

/// row_has: whether the row has a non-null value for this key. is_filled: and it is neither "" nor [].
bool row_has(const Json& row, std::string_view key);
bool is_filled(const Json& row, std::string_view key);

/// Whether a column or message part is not text: "image", "images", "audio", ...
bool is_media(std::string_view name);
/// Throws ErrorKind::input for a row with images, audio or video.
void refuse_media(const Json& row);

/// Throws ErrorKind::input for a preference-training row, in which one answer is better than another. `shape`: the name
/// of the row's shape, "" for none.
void refuse_preferences(const Json& row, std::string_view shape);

/// The config settings that would map the columns of a row, judging by their names: {"column_mapping": {...}} or
/// {"dataset_text_field": "..."}; empty if unclear, or if the columns already have the names of a shape.
Json mapping_for(const Json& row);

}  // namespace qtrain
