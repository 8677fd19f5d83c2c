#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qtrain {

/// A 128-bit hash of contents. Not collision-resistant against attackers: for caches, never for secrets.
struct Digest {
  std::uint64_t high = 0, low = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
  /// 32 hexadecimal digits.
  std::string hex() const;
};

/// Hashes contents in chunks; their boundaries do not matter.
class Hasher {
 public:
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  Digest digest() const;

 private:
  static constexpr std::size_t kBlock = 64;
  using Lanes = std::array<std::uint64_t, 4>;
  static void mix_block(Lanes& lanes, const std::byte* block);

  Lanes lanes_{0x9E3779B97F4A7C15u, 0xD1B54A32D192ED03u, 0x8CB92BA72F3D8DD7u, 0xABC98388FB8FAC03u};
  std::array<std::byte, kBlock> rest_{};
  std::uint64_t size_ = 0;
};

inline Digest digest_of(std::string_view text) {
  Hasher hasher;
  hasher.add(text);
  return hasher.digest();
}

}  // namespace qtrain
