#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace qtrain {

/// Compression of a block within a columnar file.
enum class Codec : std::uint8_t { none, snappy, gzip, zstd, lz4_block, lz4_frame };

/// Owned bytes, as opposed to mapped ones. The OS commits the memory as it is written.
class OwnedBytes {
 public:
  OwnedBytes() = default;
  explicit OwnedBytes(std::size_t size) : bytes_(std::make_unique_for_overwrite<char[]>(size)), size_(size) {}
  char* data() { return bytes_.get(); }
  std::string_view view() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0;
};

struct CompressedBlock {
  Codec codec;
  std::string_view bytes;
  std::uint64_t size;  ///< decompressed size stated by the file
};

/// Returns the block's contents, which have exactly the stated size. Throws ErrorKind::input (without a place) if the
/// block is damaged or the size is impossible.
OwnedBytes decompress(const CompressedBlock& block);

}  // namespace qtrain
