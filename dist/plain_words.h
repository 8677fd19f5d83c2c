#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// What another process says, as a terminal may show it: one line of valid UTF-8 without control characters, marks of
/// direction or escapes, each of which becomes U+FFFD; cut where it is longer than `most` bytes.
std::string plain_words(std::string_view text, std::size_t most = 4096);

}  // namespace qtrain
