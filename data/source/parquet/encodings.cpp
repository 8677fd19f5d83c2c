#include "data/source/parquet/encodings.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/error.h"

namespace qtrain {
namespace {

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto b = static_cast<std::uint8_t>(take_bytes(bytes, 1)[0]);
    value |= static_cast<std::uint64_t>(b & 0x7f) << shift;
    if (b < 0x80) return value;
  }
  require_page(false, "a number is too long");
  return 0;
}

/// Unsigned, since differences are modulo 2^64.
std::uint64_t take_zigzag(std::string_view& bytes) {
  const std::uint64_t v = take_varint(bytes);
  return (v >> 1) ^ (0 - (v & 1));
}

/// Bit-packed number `i`, least significant bits first.
std::uint64_t packed_at(std::string_view bytes, std::size_t i, int bits) {
  std::uint64_t value = 0;
  const std::size_t first = i * static_cast<std::size_t>(bits);
  for (int done = 0; done < bits;) {
    const std::size_t at = first + static_cast<std::size_t>(done);
    const int inside = static_cast<int>(at % 8), some = std::min(8 - inside, bits - done);
    const auto byte = static_cast<std::uint8_t>(bytes[at / 8]);
    value |= static_cast<std::uint64_t>((byte >> inside) & ((1 << some) - 1)) << done;
    done += some;
  }
  return value;
}

}  // namespace

void require_page(bool fine, const char* why) {
  if (!fine) fail(ErrorKind::input, {.cause = std::string("damaged Parquet page: ") + why});
}

std::string_view take_bytes(std::string_view& bytes, std::uint64_t size) {
  require_page(size <= bytes.size(), "it ends too early");
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

std::string_view take_prefixed(std::string_view& bytes) {
  std::uint32_t size = 0;
  std::memcpy(&size, take_bytes(bytes, 4).data(), 4);
  return take_bytes(bytes, size);
}

std::vector<std::uint32_t> read_hybrid(std::string_view bytes, int bits, std::size_t count) {
  require_page(bits <= 32, "numbers of more than 32 bits");
  std::vector<std::uint32_t> out;
  out.reserve(count);
  while (out.size() < count) {
    if (bits == 0 && bytes.empty()) {  // zeros of width 0 need no bytes
      out.resize(count);
      break;
    }
    const std::uint64_t header = take_varint(bytes), length = header >> 1, left = count - out.size();
    if (header & 1) {
      require_page(length <= bytes.size() / static_cast<std::size_t>(std::max(bits, 1)) || bits == 0,
                   "it ends too early");
      const std::string_view packed = take_bytes(bytes, bits == 0 ? 0 : length * static_cast<std::uint64_t>(bits));
      const std::uint64_t groups = std::min<std::uint64_t>(length, (left + 7) / 8);
      for (std::size_t i = 0; i < std::min<std::uint64_t>(groups * 8, left); ++i)
        out.push_back(static_cast<std::uint32_t>(packed_at(packed, i, bits)));
    } else {
      std::uint32_t value = 0;
      const std::string_view stored = take_bytes(bytes, static_cast<std::uint64_t>((bits + 7) / 8));
      std::memcpy(&value, stored.data(), stored.size());
      out.insert(out.end(), std::min(length, left), value);
    }
    require_page(length > 0, "an empty run");
  }
  return out;
}

std::vector<std::int64_t> read_deltas(std::string_view& bytes, std::size_t count) {
  const std::uint64_t block = take_varint(bytes), miniblocks = take_varint(bytes), total = take_varint(bytes);
  require_page(miniblocks > 0 && miniblocks <= 512 && block % miniblocks == 0 && block <= 1u << 16, "blocks of deltas");
  const std::size_t in_miniblock = block / miniblocks;
  require_page(in_miniblock % 8 == 0 && in_miniblock > 0, "blocks of deltas");
  require_page(total == count, "the number of deltas differs from that of the values");
  std::uint64_t value = take_zigzag(bytes);
  std::vector<std::int64_t> out;
  if (count == 0) return out;
  out.reserve(count);
  out.push_back(static_cast<std::int64_t>(value));
  while (out.size() < count) {
    const std::uint64_t smallest = take_zigzag(bytes);
    const std::string_view widths = take_bytes(bytes, miniblocks);
    for (std::size_t m = 0; m < miniblocks && out.size() < count; ++m) {
      const int bits = static_cast<std::uint8_t>(widths[m]);
      require_page(bits <= 64, "numbers of more than 64 bits");
      const std::string_view packed = take_bytes(bytes, in_miniblock / 8 * static_cast<std::size_t>(bits));
      for (std::size_t i = 0; i < in_miniblock && out.size() < count; ++i) {
        value += smallest + packed_at(packed, i, bits);
        out.push_back(static_cast<std::int64_t>(value));
      }
    }
  }
  return out;
}

std::vector<std::string_view> read_delta_lengths(std::string_view& bytes, std::size_t count) {
  std::vector<std::string_view> out;
  out.reserve(count);
  for (const std::int64_t length : read_deltas(bytes, count)) {
    require_page(length >= 0, "text has a negative length");
    out.push_back(take_bytes(bytes, static_cast<std::uint64_t>(length)));
  }
  return out;
}

}  // namespace qtrain
