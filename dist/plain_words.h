#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// Makes text from another process safe for a terminal: one line of valid UTF-8, in which control characters, marks of
/// direction and escapes become U+FFFD; cut to `max_bytes`.
std::string plain_words(std::string_view text, std::size_t max_bytes = 4096);

}  // namespace qtrain
