#pragma once
#include <string>

#include "core/formats/json.h"

namespace qtrain {

/// The text of a message's content: the string itself, or the text parts of a list concatenated.
std::string content_text(const Json& message);
/// Whether the message is a turn of the assistant.
bool is_assistant(const Json& message);

}  // namespace qtrain
