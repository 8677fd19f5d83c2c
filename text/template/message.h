#pragma once
#include <string>

#include "core/formats/json.h"

namespace qtrain {

/// The text of a message's content: the string itself, or the concatenated text parts of a list.
std::string content_text(const Json& message);
/// Whether the message is an assistant turn.
bool is_assistant(const Json& message);

}  // namespace qtrain
