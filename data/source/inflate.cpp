#include "data/source/inflate.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/error.h"

namespace qtrain {
namespace {

constexpr std::uint64_t kMaxInflated = std::uint64_t{1} << 36;
constexpr std::size_t kChunk = std::size_t{1} << 20;

bool is_gzip(std::string_view b) {
  return b.starts_with("\x1f\x8b");
}
bool is_zstd(std::string_view b) {
  return b.starts_with("\x28\xb5\x2f\xfd");
}

[[noreturn]] void damaged(const std::string& name, const std::string& why) {
  fail(ErrorKind::input, {.cause = "damaged compressed file: " + why, .place = name, .remedy = "Compress it again."});
}

void check_size(std::uint64_t size, const std::string& name) {
  if (size > kMaxInflated)
    fail(ErrorKind::input,
         {.cause = "more than 64 GiB after decompression", .place = name, .remedy = "Split the file."});
}

std::string inflate_gzip(std::string_view bytes, const std::string& name) {
  z_stream z{};
  if (inflateInit2(&z, 15 + 16) != Z_OK) fail(ErrorKind::internal, {.cause = "zlib does not start"});  // 16: gzip
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> guard(&z, inflateEnd);
  std::string out;
  std::vector<char> chunk(kChunk);
  bool ended = false;
  while (!bytes.empty() || !ended) {
    const auto fed = std::min<std::size_t>(bytes.size(), std::numeric_limits<int>::max());
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    z.avail_in = static_cast<uInt>(fed);
    z.next_out = reinterpret_cast<Bytef*>(chunk.data());
    z.avail_out = kChunk;
    if (ended && inflateReset(&z) != Z_OK) damaged(name, "next gzip member");
    const int status = inflate(&z, Z_NO_FLUSH);
    const std::size_t produced = kChunk - z.avail_out, consumed = fed - z.avail_in;
    out.append(chunk.data(), produced);
    bytes.remove_prefix(consumed);
    check_size(out.size(), name);
    ended = status == Z_STREAM_END;
    if (ended && bytes.find_first_not_of('\0') == std::string_view::npos) break;  // tape padding may follow
    if (status != Z_OK && !ended) damaged(name, z.msg ? z.msg : "ends too early");
    if (produced == 0 && consumed == 0) damaged(name, "ends too early");
  }
  return out;
}

std::string inflate_zstd(std::string_view bytes, const std::string& name) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  check(stream != nullptr, "zstd does not start");
  std::string out;
  std::vector<char> chunk(kChunk);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  std::size_t pending = 1;
  while (in.pos < in.size || pending != 0) {
    ZSTD_outBuffer produced{chunk.data(), chunk.size(), 0};
    const std::size_t before = in.pos;
    pending = ZSTD_decompressStream(stream.get(), &produced, &in);
    if (ZSTD_isError(pending)) damaged(name, ZSTD_getErrorName(pending));
    if (in.pos == before && produced.pos == 0) damaged(name, "ends too early");
    out.append(chunk.data(), produced.pos);
    check_size(out.size(), name);
  }
  return out;
}

}  // namespace

bool is_compressed(std::string_view bytes) {
  return is_gzip(bytes) || is_zstd(bytes);
}

std::string inflate_bytes(std::string_view bytes, const std::string& name) {
  return is_gzip(bytes) ? inflate_gzip(bytes, name) : inflate_zstd(bytes, name);
}

}  // namespace qtrain
