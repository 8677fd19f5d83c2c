#include "core/file_order.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace qtrain {
namespace {

/// An axis with its strides in the source and in the destination, in elements.
struct Axis {
  std::int64_t size, read, write;
};
using Axes = std::vector<Axis>;

/// The axes in file order. Axes that are adjacent in memory too are merged.
Axes axes_to_file(const FileOrder& order) {
  std::array<std::int64_t, 4> strides{};
  std::int64_t elements = 1;
  for (int i = order.shape.rank - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = elements;
    elements *= order.shape[i];
  }
  Axes axes;
  for (int i = 0; i < order.shape.rank; ++i) {
    const int axis = order.axes[static_cast<std::size_t>(i)];
    const std::int64_t size = order.shape[axis], read = strides[static_cast<std::size_t>(axis)];
    if (size == 1) continue;
    if (!axes.empty() && axes.back().read == size * read)
      axes.back() = {axes.back().size * size, read, 0};
    else
      axes.push_back({size, read, 0});
  }
  std::int64_t write = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    axis->write = write;
    write *= axis->size;
  }
  return axes;
}

/// Calls act(offset read, offset written) for every combination of the outer axes.
template <class Act>
void each(std::span<const Axis> outer, std::int64_t read, std::int64_t write, const Act& act) {
  if (outer.empty()) return act(read, write);
  for (std::int64_t i = 0; i < outer.front().size; ++i)
    each(outer.subspan(1), read + i * outer.front().read, write + i * outer.front().write, act);
}

/// Removes and returns the axis with the smallest stride.
Axis take_fastest(Axes& axes, std::int64_t Axis::*stride) {
  const auto it = std::ranges::min_element(axes, {}, stride);
  const Axis taken = *it;
  axes.erase(it);
  return taken;
}

/// Transposes a matrix of elements of N bytes, tile by tile: `rows` are contiguous in the source and `columns` in the
/// destination. A tile is read in whole cache lines, because lines that are a large power of two apart evict each
/// other.
template <std::size_t N>
void transpose(const Axis& rows, const Axis& columns, const std::byte* from, std::byte* to) {
  constexpr std::int64_t kLine = 64 / N, kColumns = 64, kBytes = N;
  std::array<std::array<std::byte, 64>, kColumns> tile;
  for (std::int64_t r = 0; r < rows.size; r += kLine)
    for (std::int64_t c = 0; c < columns.size; c += kColumns) {
      const std::int64_t lines = std::min(kColumns, columns.size - c), length = std::min(kLine, rows.size - r);
      for (std::int64_t j = 0; j < lines; ++j)
        std::memcpy(tile[static_cast<std::size_t>(j)].data(), from + (r + (c + j) * columns.read) * kBytes,
                    static_cast<std::size_t>(length * kBytes));
      for (std::int64_t i = 0; i < length; ++i) {
        std::byte* const row = to + ((r + i) * rows.write + c) * kBytes;
        for (std::int64_t j = 0; j < lines; ++j)
          std::memcpy(row + j * kBytes, tile[static_cast<std::size_t>(j)].data() + i * kBytes, N);
      }
    }
}

template <std::size_t N>
void copy_elements(Axes axes, const std::byte* from, std::byte* to) {
  constexpr std::int64_t kBytes = N;
  if (axes.empty()) axes.push_back({1, 1, 1});
  const Axis written = take_fastest(axes, &Axis::write);
  if (written.read == 1)
    return each(axes, 0, 0, [&](std::int64_t read, std::int64_t write) {
      std::memcpy(to + write * kBytes, from + read * kBytes, static_cast<std::size_t>(written.size) * N);
    });
  const Axis read_axis = take_fastest(axes, &Axis::read);
  each(axes, 0, 0, [&](std::int64_t read, std::int64_t write) {
    transpose<N>(read_axis, written, from + read * kBytes, to + write * kBytes);
  });
}

void copy(const Axes& axes, ConstTensor from, Tensor to) {
  switch (size_of(from.dtype)) {
    case 1: return copy_elements<1>(axes, from.data, to.data);
    case 2: return copy_elements<2>(axes, from.data, to.data);
    case 4: return copy_elements<4>(axes, from.data, to.data);
    default: return copy_elements<8>(axes, from.data, to.data);
  }
}

}  // namespace

void to_file_order(const FileOrder& order, ConstTensor memory, Tensor file) {
  if (memory.numel() > 0) copy(axes_to_file(order), memory, file);
}

void from_file_order(const FileOrder& order, ConstTensor file, Tensor memory) {
  Axes axes = axes_to_file(order);
  for (Axis& axis : axes) std::swap(axis.read, axis.write);
  if (file.numel() > 0) copy(axes, file, memory);
}

}  // namespace qtrain
