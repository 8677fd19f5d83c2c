#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace qtrain {

/// SHA-256 (FIPS 180-4) of what is added piece by piece; how it is cut does not matter.
class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  /// 64 hexadecimal digits.
  std::string hex() const;

 private:
  static constexpr std::size_t kBlock = 64;
  using State = std::array<std::uint32_t, 8>;
  static void mix_block(State& state, const std::byte* block);

  State state_{0x6A09E667u, 0xBB67AE85u, 0x3C6EF372u, 0xA54FF53Au, 0x510E527Fu, 0x9B05688Cu, 0x1F83D9ABu, 0x5BE0CD19u};
  std::array<std::byte, kBlock> rest_{};
  std::uint64_t size_ = 0;
};

std::string sha256_of(std::string_view text);

/// Of the contents of a regular file. Errors (ErrorKind::input): as MappedFile.
std::string sha256_of_file(const std::filesystem::path& file);

}  // namespace qtrain
