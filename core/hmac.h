#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace qtrain {

using Mac = std::array<std::byte, 32>;

/// HMAC-SHA-256 (RFC 2104) of `text`.
Mac hmac_sha256(std::string_view key, std::string_view text);

/// Compares in constant time.
bool same_mac(std::span<const std::byte, 32> a, std::span<const std::byte, 32> b);

/// Fills the bytes with cryptographically secure random numbers.
void fill_with_randomness(std::span<std::byte> bytes);

}  // namespace qtrain
