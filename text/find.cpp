#include "text/find.h"

#include <cstring>

namespace qtrain {

std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from) {
  constexpr std::size_t kShort = 32;  // longest text for which trying every position is fast enough
  if (wanted.size() <= kShort || from > text.size()) return text.find(wanted, from);
  const void* found = ::memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

}  // namespace qtrain
