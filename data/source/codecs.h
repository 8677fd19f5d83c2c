#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace qtrain {

/// How a block inside a columnar file is compressed.
enum class Codec : std::uint8_t { none, snappy, gzip, zstd, lz4_block, lz4_frame };

/// Bytes that were made, not mapped. Their memory is taken as they are written.
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
  std::uint64_t size;  ///< decompressed, as the file claims
};

/// The block's contents, which have exactly the claimed size.
/// Errors (ErrorKind::input, without a place): damaged, or a size that such a block cannot have.
OwnedBytes decompress(const CompressedBlock& block);

}  // namespace qtrain
