#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace qtrain {

/// Random numbers that hashes of this process depend on. Whoever writes a file does not know them, so its keys cannot
/// be chosen to collide in a hash table, which would make reading it take quadratic time. Nothing else may depend on
/// them: results must not depend on the order of a hash table.
struct HashKey {
  std::uint64_t first = 0, second = 0;
};
const HashKey& hash_key();

/// The product of two numbers, folded to 64 bits, as in wyhash.
constexpr std::uint64_t fold_product(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Hashes 64 bits; every bit of the result depends on the key.
constexpr std::uint64_t keyed_hash(std::uint64_t value, const HashKey& key) {
  return fold_product(fold_product(value ^ key.first, key.second), key.first ^ key.second);
}

inline std::uint64_t keyed_hash(std::string_view text, const HashKey& key) {
  const auto load = [](const char* at, std::size_t size) {
    std::uint64_t value = 0;
    if (size > 0) std::memcpy(&value, at, size);
    return value;
  };
  std::uint64_t hash = key.second + text.size() * 0x9E3779B97F4A7C15u;
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left > 8; left -= 8, at += 8) hash = fold_product(load(at, 8) ^ key.first, hash ^ key.second);
  return fold_product(fold_product(load(at, left) ^ key.first, hash), key.first ^ key.second);
}

/// The hash for unordered containers whose keys come from files or requests.
struct KeyedHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return keyed_hash(text, hash_key()); }
  template <std::integral T>
  std::size_t operator()(T value) const {
    return keyed_hash(static_cast<std::uint64_t>(value), hash_key());
  }
};

}  // namespace qtrain
