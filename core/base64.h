#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// The bytes in base64 (RFC 4648, with padding).
std::string base64_of(std::string_view bytes);

}  // namespace qtrain
