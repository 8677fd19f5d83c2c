#include "core/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace qtrain {
namespace {

std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::string Digest::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

// Per lane: l = rotate(l, 23) ^ fold((a ^ l) * (b ^ k)), so that a product of zero does not erase earlier input.
void Hasher::mix_block(Lanes& lanes, const std::byte* block) {
  constexpr Lanes kKeys{0xA0761D6478BD642Fu, 0xE7037ED1A0B428DBu, 0x8EBC6AF09C88C6E3u, 0x589965CC75374CC3u};
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    std::uint64_t a = 0, b = 0;
    std::memcpy(&a, block + 16 * i, 8);
    std::memcpy(&b, block + 16 * i + 8, 8);
    lanes[i] = std::rotl(lanes[i], 23) ^ folded_product(a ^ lanes[i], b ^ kKeys[i]);
  }
}

void Hasher::add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const std::size_t held = size_ % kBlock;
  size_ += bytes.size();
  if (held > 0) {
    const std::size_t n = std::min(bytes.size(), kBlock - held);
    std::memcpy(rest_.data() + held, bytes.data(), n);
    bytes = bytes.subspan(n);
    if (held + n < kBlock) return;
    mix_block(lanes_, rest_.data());
  }
  for (; bytes.size() >= kBlock; bytes = bytes.subspan(kBlock)) mix_block(lanes_, bytes.data());
  if (!bytes.empty()) std::memcpy(rest_.data(), bytes.data(), bytes.size());
}

Digest Hasher::digest() const {
  Lanes lanes = lanes_;
  std::array<std::byte, kBlock> last{};
  std::memcpy(last.data(), rest_.data(), size_ % kBlock);
  mix_block(lanes, last.data());
  std::memcpy(last.data(), &size_, sizeof size_);
  mix_block(lanes, last.data());
  const auto join = [&](std::uint64_t key) {
    const std::uint64_t ab = folded_product(lanes[0] ^ key, lanes[1] ^ std::rotl(key, 32));
    const std::uint64_t cd = folded_product(lanes[2] ^ ~key, lanes[3] ^ std::rotl(key, 17));
    return folded_product(ab ^ lanes[3] ^ key, cd ^ lanes[0]) ^ ab ^ std::rotl(cd, 31);
  };
  return {join(0x2D358DCCAA6C78A5u), join(0x8BB84B93962EACC9u)};
}

}  // namespace qtrain
