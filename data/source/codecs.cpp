#include "data/source/codecs.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"

namespace qtrain {
namespace {

/// The most that a byte of each format can stand for, in the order of Codec.
constexpr std::uint64_t kMaxPerByte[] = {1, 64, 1100, 50'000, 256, 256};
constexpr std::uint64_t kMaxBlock = std::uint64_t{1} << 32;

[[noreturn]] void damaged_block(const char* why) {
  fail(ErrorKind::input, {.cause = std::string("damaged compressed data: ") + why});
}

void require_block(bool fine, const char* why) {
  if (!fine) damaged_block(why);
}

/// Input and output of the two formats that copy from what they have written.
class BlockCopier {
 public:
  BlockCopier(std::string_view in, std::span<char> out) : in_(in), out_(out) {}

  bool input_ended() const { return at_ == in_.size(); }
  std::uint64_t written() const { return written_; }
  void set_input(std::string_view in) { in_ = in, at_ = 0; }

  std::uint8_t byte() {
    require_block(at_ < in_.size(), "ends too early");
    return static_cast<std::uint8_t>(in_[at_++]);
  }
  std::uint64_t little_endian(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= static_cast<std::uint64_t>(byte()) << (8 * i);
    return value;
  }
  void literal(std::uint64_t size) {
    require_block(size <= in_.size() - at_ && size <= out_.size() - written_, "a literal is too long");
    std::memcpy(out_.data() + written_, in_.data() + at_, size);
    at_ += size, written_ += size;
  }
  /// `size` bytes from `distance` back; they may overlap what is written.
  void copy(std::uint64_t distance, std::uint64_t size) {
    require_block(distance > 0 && distance <= written_ && size <= out_.size() - written_, "a copy is out of range");
    char* to = out_.data() + written_;
    if (distance >= size)
      std::memcpy(to, to - distance, size);
    else
      for (std::uint64_t i = 0; i < size; ++i) to[i] = to[i - distance];
    written_ += size;
  }

 private:
  std::string_view in_;
  std::span<char> out_;
  std::uint64_t at_ = 0, written_ = 0;
};

void read_snappy(BlockCopier& block, std::uint64_t claimed) {
  std::uint64_t size = 0;
  for (int shift = 0;; shift += 7) {
    const std::uint8_t b = block.byte();
    require_block(shift <= 28, "a length is too long");
    size |= static_cast<std::uint64_t>(b & 0x7f) << shift;
    if (b < 0x80) break;
  }
  require_block(size == claimed, "its length is not the one claimed");
  while (!block.input_ended()) {
    const std::uint8_t tag = block.byte();
    const int high = tag >> 2;
    switch (tag & 3) {
      case 0: block.literal((high < 60 ? static_cast<std::uint64_t>(high) : block.little_endian(high - 59)) + 1); break;
      case 1: block.copy((static_cast<std::uint64_t>(tag >> 5) << 8) | block.byte(), (high & 7) + 4); break;
      case 2: block.copy(block.little_endian(2), high + 1); break;
      default: block.copy(block.little_endian(4), high + 1);
    }
  }
}

std::uint64_t lz4_length(BlockCopier& block, std::uint64_t nibble) {
  std::uint64_t length = nibble;
  for (std::uint8_t more = 255; nibble == 15 && more == 255; length += more) more = block.byte();
  return length;
}

void read_lz4_block(BlockCopier& block) {
  while (!block.input_ended()) {
    const std::uint8_t token = block.byte();
    block.literal(lz4_length(block, token >> 4));
    if (block.input_ended()) return;  // the last sequence is a literal alone
    const std::uint64_t distance = block.little_endian(2);
    block.copy(distance, lz4_length(block, token & 15) + 4);
  }
}

/// Checksums are not looked at: what they guard is checked where it is read.
void read_lz4_frame(std::string_view in, std::span<char> out) {
  BlockCopier frame(in, out), blocks({}, out);
  require_block(frame.little_endian(4) == 0x184D2204, "no LZ4 frame");
  const std::uint8_t flags = frame.byte();
  require_block(flags >> 6 == 1, "an LZ4 frame of an unknown version");
  const bool block_sums = flags & 0x10, has_size = flags & 0x08, has_dictionary = flags & 0x01;
  require_block(!has_dictionary, "an LZ4 frame that needs a dictionary");
  std::size_t at = 4 + 2 + (has_size ? 8 : 0) + 1;
  for (;;) {
    require_block(at + 4 <= in.size(), "ends too early");
    frame.set_input(in.substr(at, 4));
    const std::uint64_t header = frame.little_endian(4), size = header & 0x7fffffff;
    at += 4;
    if (header == 0) break;
    require_block(size <= in.size() - at, "ends too early");
    blocks.set_input(in.substr(at, size));
    header >> 31 ? blocks.literal(size) : read_lz4_block(blocks);
    at += size + (block_sums ? 4 : 0);
  }
  require_block(blocks.written() == out.size(), "its length is not the one claimed");
}

void read_gzip(std::string_view in, std::span<char> out) {
  z_stream z{};
  require_block(inflateInit2(&z, 15 + 32) == Z_OK, "zlib does not start");  // 32: gzip or zlib
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> guard(&z, inflateEnd);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  z.avail_in = static_cast<uInt>(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  require_block(inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_out == 0, "gzip");
}

void read_zstd(std::string_view in, std::span<char> out) {
  const std::size_t size = ZSTD_decompress(out.data(), out.size(), in.data(), in.size());
  require_block(!ZSTD_isError(size), "zstd");
  require_block(size == out.size(), "its length is not the one claimed");
}

}  // namespace

OwnedBytes decompress(const CompressedBlock& block) {
  const std::uint64_t most = block.bytes.size() * kMaxPerByte[static_cast<std::size_t>(block.codec)] + 64;
  require_block(block.size <= most && block.size < kMaxBlock && block.bytes.size() < kMaxBlock,
                "it claims to be larger than it can be");
  OwnedBytes out(block.size);
  const std::span<char> to(out.data(), block.size);
  BlockCopier copier(block.bytes, to);
  switch (block.codec) {
    case Codec::none: copier.literal(block.bytes.size()); break;
    case Codec::snappy: read_snappy(copier, block.size); break;
    case Codec::lz4_block: read_lz4_block(copier); break;
    case Codec::lz4_frame: read_lz4_frame(block.bytes, to); return out;
    case Codec::gzip: read_gzip(block.bytes, to); return out;
    case Codec::zstd: read_zstd(block.bytes, to); return out;
  }
  require_block(copier.written() == block.size, "its length is not the one claimed");
  return out;
}

}  // namespace qtrain
