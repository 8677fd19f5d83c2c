#pragma once
#include <cstddef>
#include <string_view>

namespace qtrain {

/// text.find(wanted, from), in time that is linear in the total size even if much of both is alike.
std::size_t find_text(std::string_view text, std::string_view wanted, std::size_t from = 0);

}  // namespace qtrain
