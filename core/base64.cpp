#include "core/base64.h"

#include <cstdint>

namespace qtrain {

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t kGroup = 3, kDigitsOfGroup = 4;
  std::string out;
  out.reserve((bytes.size() + kGroup - 1) / kGroup * kDigitsOfGroup);
  for (std::size_t at = 0; at < bytes.size(); at += kGroup) {
    const std::string_view group = bytes.substr(at, kGroup);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < kGroup; ++i)
      bits = bits << 8U | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0U);
    for (std::size_t i = 0; i < kDigitsOfGroup; ++i)
      out += i <= group.size() ? kDigits[bits >> (18U - 6U * i) & 63U] : '=';
  }
  return out;
}

}  // namespace qtrain
