#pragma once
#include <optional>
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

/// A column's name as names are compared: in lower case.
std::string plain_name(std::string column);

/// The config settings that would map the columns of a row of no known shape, judging by their names:
/// {"column_mapping": {...}} or {"dataset_text_field": "..."}; empty if unclear.
Json mapping_for(const Json& row);

/// The same for the conversation, or the question and its answer, that a row has next to the column `text`, which
/// should not be there; none if there are none with clear names. Empty if they have the names of a shape.
std::optional<Json> answers_beside_text(const Json& row);

/// The same for what a row of a known shape has besides: a system prompt, and what a question is about. What its shape
/// reads stays as it is, but prompt and completion become an instruction and its output, and so does an input with
/// further columns.
Json additions_for(const Json& row, std::string_view shape);

}  // namespace qtrain
