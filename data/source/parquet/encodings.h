#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace qtrain {

// The encodings of Parquet's pages. Errors (ErrorKind::input, without a place): too few bytes, malformed.

void require_page(bool fine, const char* why);

/// The next `size` bytes, which leave `bytes`.
std::string_view take_bytes(std::string_view& bytes, std::uint64_t size);
/// A little-endian 32-bit length that stands before bytes, and those bytes.
std::string_view take_prefixed(std::string_view& bytes);

/// Runs and bit-packed groups of numbers of `bits` bits (at most 32).
std::vector<std::uint32_t> read_hybrid(std::string_view bytes, int bits, std::size_t count);

/// DELTA_BINARY_PACKED: exactly `count` numbers; `bytes` is left behind them.
std::vector<std::int64_t> read_deltas(std::string_view& bytes, std::size_t count);

/// DELTA_LENGTH_BYTE_ARRAY: views of the page.
std::vector<std::string_view> read_delta_lengths(std::string_view& bytes, std::size_t count);

}  // namespace qtrain
