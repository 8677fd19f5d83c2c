#include "data/source/codecs.h"

#include <lz4.h>
#include <lz4frame.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <span>

#include "core/error.h"

namespace qtrain {
namespace {

/// The highest compression ratio of each format, in the order of Codec.
constexpr std::uint64_t kMaxPerByte[] = {1, 64, 1100, 50'000, 256, 256};
constexpr std::uint64_t kMaxBlock = std::uint64_t{1} << 32;

[[noreturn]] void damaged_block(const char* why) {
  fail(ErrorKind::input, {.cause = std::string("damaged compressed data: ") + why});
}

void require_block(bool fine, const char* why) {
  if (!fine) damaged_block(why);
}

void read_plain(std::string_view in, std::span<char> out) {
  require_block(in.size() == out.size(), "its length differs from the stated one");
  std::ranges::copy(in, out.begin());
}

void read_snappy(std::string_view in, std::span<char> out) {
  std::size_t size = 0;
  require_block(snappy::GetUncompressedLength(in.data(), in.size(), &size), "snappy");
  require_block(size == out.size(), "its length differs from the stated one");
  require_block(snappy::RawUncompress(in.data(), in.size(), out.data()), "snappy");
}

void read_lz4_block(std::string_view in, std::span<char> out) {
  constexpr std::size_t kMax = std::numeric_limits<int>::max();
  require_block(in.size() <= kMax && out.size() <= kMax, "an LZ4 block over 2 GiB");
  const int size =
      LZ4_decompress_safe(in.data(), out.data(), static_cast<int>(in.size()), static_cast<int>(out.size()));
  require_block(size >= 0, "LZ4");
  require_block(static_cast<std::size_t>(size) == out.size(), "its length differs from the stated one");
}

void read_lz4_frame(std::string_view in, std::span<char> out) {
  LZ4F_dctx* made = nullptr;
  check(!LZ4F_isError(LZ4F_createDecompressionContext(&made, LZ4F_VERSION)), "LZ4 initialization failed");
  const std::unique_ptr<LZ4F_dctx, decltype(&LZ4F_freeDecompressionContext)> context(made,
                                                                                     LZ4F_freeDecompressionContext);
  for (bool ended = false; !ended;) {
    std::size_t consumed = in.size(), produced = out.size();
    const std::size_t hint = LZ4F_decompress(made, out.data(), &produced, in.data(), &consumed, nullptr);
    require_block(!LZ4F_isError(hint), "LZ4");
    ended = hint == 0;
    require_block(ended || consumed + produced > 0, "LZ4 ends too early, or its length differs from the stated one");
    in.remove_prefix(consumed), out = out.subspan(produced);
  }
  require_block(out.empty(), "its length differs from the stated one");
}

void read_gzip(std::string_view in, std::span<char> out) {
  z_stream z{};
  require_block(inflateInit2(&z, 15 + 32) == Z_OK, "zlib initialization failed");  // 32: gzip or zlib
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
  require_block(size == out.size(), "its length differs from the stated one");
}

}  // namespace

OwnedBytes decompress(const CompressedBlock& block) {
  const std::uint64_t most = block.bytes.size() * kMaxPerByte[static_cast<std::size_t>(block.codec)] + 64;
  require_block(block.size <= most && block.size < kMaxBlock && block.bytes.size() < kMaxBlock,
                "its stated size is impossible");
  OwnedBytes out(block.size);
  const std::span<char> to(out.data(), block.size);
  switch (block.codec) {
    case Codec::none: read_plain(block.bytes, to); break;
    case Codec::snappy: read_snappy(block.bytes, to); break;
    case Codec::lz4_block: read_lz4_block(block.bytes, to); break;
    case Codec::lz4_frame: read_lz4_frame(block.bytes, to); break;
    case Codec::gzip: read_gzip(block.bytes, to); break;
    case Codec::zstd: read_zstd(block.bytes, to); break;
  }
  return out;
}

}  // namespace qtrain
