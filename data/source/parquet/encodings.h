#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace qtrain {

// The encodings of Parquet's pages. All throw ErrorKind::input (without a place) for truncated or malformed data.

void require_page(bool fine, const char* why);

/// Removes the next `size` bytes from `bytes` and returns them.
std::string_view take_bytes(std::string_view& bytes, std::uint64_t size);
/// Removes a little-endian 32-bit length and that many bytes; returns the latter.
std::string_view take_prefixed(std::string_view& bytes);

/// Decodes runs and bit-packed groups of `bits`-bit numbers (at most 32 bits).
std::vector<std::uint32_t> read_hybrid(std::string_view bytes, int bits, std::size_t count);

/// DELTA_BINARY_PACKED: decodes exactly `count` numbers and removes them from `bytes`.
std::vector<std::int64_t> read_deltas(std::string_view& bytes, std::size_t count);

/// DELTA_LENGTH_BYTE_ARRAY: returns views of the page.
std::vector<std::string_view> read_delta_lengths(std::string_view& bytes, std::size_t count);

}  // namespace qtrain
