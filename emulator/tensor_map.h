#pragma once
#include <cstddef>
#include <cstdint>

namespace qtrain::emulation {

/// How copies of boxes see a tensor of 16-bit elements (PTX manual, "Tensor-map"); the fastest dimension comes first.
/// Programs must treat it as opaque.
struct TensorMap {
  std::uint64_t made = 0;  ///< kMade if tensor_map_of has made it
  const std::byte* data = nullptr;
  std::int64_t extents[3] = {}, strides[3] = {};  ///< strides are in bytes
  std::int64_t box[3] = {};
  std::uint64_t unused[5] = {};

  static constexpr std::uint64_t kMade = 0x706d'726f'736e'6574;
};
static_assert(sizeof(TensorMap) == 128);

/// A copy of the box whose first element has these coordinates.
struct BoxCopy {
  std::byte* to;
  TensorMap map;
  int at[3];

  static constexpr int kChunkElements = 8, kChunkBytes = 16, kRowBytes = 128, kAtomBytes = 1024;

  std::size_t rows() const { return static_cast<std::size_t>(map.box[1] * map.box[2]); }
  std::size_t bytes() const { return rows() * static_cast<std::size_t>(2 * map.box[0]); }

  /// Calls f(to, from) for each chunk of 16 bytes; `from` is null outside the tensor. A row takes 128 bytes. In
  /// 128-byte swizzle, chunk c of the row r of an atom of eight rows is stored at c ^ r.
  template <class F>
  void for_chunks(const F& f) const {
    for (std::int64_t r = 0; r < static_cast<std::int64_t>(rows()); ++r) {
      const std::int64_t y = at[1] + r % map.box[1], z = at[2] + r / map.box[1];
      const bool row_exists = y >= 0 && y < map.extents[1] && z >= 0 && z < map.extents[2];
      for (std::int64_t c = 0; c < map.box[0] / kChunkElements; ++c) {
        const std::int64_t x = at[0] + c * kChunkElements;
        const bool exists = row_exists && x >= 0 && x < map.extents[0];
        const std::byte* from = exists ? map.data + 2 * x + y * map.strides[1] + z * map.strides[2] : nullptr;
        f(to + r * kRowBytes + (c ^ r % 8) * kChunkBytes, from);
      }
    }
  }
  /// The bytes that are in the tensor.
  std::size_t bytes_read() const {
    std::size_t bytes = 0;
    for_chunks([&](const std::byte*, const std::byte* from) { bytes += from ? kChunkBytes : 0; });
    return bytes;
  }
};

}  // namespace qtrain::emulation
