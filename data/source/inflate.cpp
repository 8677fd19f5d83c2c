#include "data/source/inflate.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/os/stop.h"
#include "data/source/growth_limit.h"
#include "data/source/raw_rows.h"

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

/// Passes pieces on while they stay within the limits.
class Pieces {
 public:
  Pieces(const InflateRequest& request, const std::function<void(std::string_view)>& take)
      : name_(request.name),
        limit_(request.bytes.size(),
               "If you trust the file, decompress it with gzip -d or zstd -d and use the result."),
        take_(take) {}

  void pass(std::string_view piece) {
    throw_if_stopped();
    with_place(name_, [&] { limit_.add(piece.size()); });
    size_ += piece.size();
    if (size_ > kMaxInflated)
      fail(ErrorKind::input,
           {.cause = "more than 64 GiB after decompression", .place = name_, .remedy = "Split the file."});
    take_(piece);
  }

 private:
  const std::string& name_;
  GrowthLimit limit_;
  const std::function<void(std::string_view)>& take_;
  std::uint64_t size_ = 0;
};

void inflate_gzip(const InflateRequest& request, Pieces pieces) {
  z_stream z{};
  if (inflateInit2(&z, 15 + 16) != Z_OK)
    fail(ErrorKind::internal, {.cause = "zlib initialization failed"});  // 16: gzip
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> guard(&z, inflateEnd);
  std::string_view bytes = request.bytes;
  std::vector<char> chunk(kChunk);
  bool ended = false;
  while (!bytes.empty() || !ended) {
    const auto fed = std::min<std::size_t>(bytes.size(), std::numeric_limits<int>::max());
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    z.avail_in = static_cast<uInt>(fed);
    z.next_out = reinterpret_cast<Bytef*>(chunk.data());
    z.avail_out = kChunk;
    if (ended && inflateReset(&z) != Z_OK) damaged(request.name, "next gzip member");
    const int status = inflate(&z, Z_NO_FLUSH);
    const std::size_t produced = kChunk - z.avail_out, consumed = fed - z.avail_in;
    pieces.pass({chunk.data(), produced});
    bytes.remove_prefix(consumed);
    ended = status == Z_STREAM_END;
    if (ended && bytes.find_first_not_of('\0') == std::string_view::npos) break;  // tape padding may follow
    if (status != Z_OK && !ended) damaged(request.name, z.msg ? z.msg : "ends too early");
    if (produced == 0 && consumed == 0) damaged(request.name, "ends too early");
  }
}

void inflate_zstd(const InflateRequest& request, Pieces pieces) {
  const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  check(stream != nullptr, "zstd initialization failed");
  std::vector<char> chunk(kChunk);
  ZSTD_inBuffer in{request.bytes.data(), request.bytes.size(), 0};
  std::size_t pending = 1;
  while (in.pos < in.size || pending != 0) {
    ZSTD_outBuffer produced{chunk.data(), chunk.size(), 0};
    const std::size_t before = in.pos;
    pending = ZSTD_decompressStream(stream.get(), &produced, &in);
    if (ZSTD_isError(pending)) damaged(request.name, ZSTD_getErrorName(pending));
    if (in.pos == before && produced.pos == 0) damaged(request.name, "ends too early");
    pieces.pass({chunk.data(), produced.pos});
  }
}

}  // namespace

bool is_compressed(std::string_view bytes) {
  return is_gzip(bytes) || is_zstd(bytes);
}

void inflate_bytes(const InflateRequest& request, const std::function<void(std::string_view)>& take) {
  is_gzip(request.bytes) ? inflate_gzip(request, {request, take}) : inflate_zstd(request, {request, take});
}

}  // namespace qtrain
