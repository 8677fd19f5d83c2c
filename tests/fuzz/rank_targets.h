#pragma once
#include <string_view>

namespace qtrain::fuzz {

/// What ranks read from connections, as arbitrary bytes; see Target::run.
void store_request(std::string_view bytes);
void store_answer(std::string_view bytes);
void rank_handshake(std::string_view bytes);
void rank_words(std::string_view bytes);

}  // namespace qtrain::fuzz
