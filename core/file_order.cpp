#include "core/file_order.h"

#include <cstring>

namespace qtrain {
namespace {

// Calls act(place in files, place in memory) for every element.
template <class Act>
void each_element(const FileOrder& order, Act&& act) {
  const int rank = order.shape.rank;
  std::array<std::int64_t, 4> size{1, 1, 1, 1}, step{}, strides{};
  std::int64_t inner = 1;
  for (int i = rank - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = inner;
    inner *= order.shape[i];
  }
  for (int i = 0; i < rank; ++i) {
    const auto axis = static_cast<std::size_t>(order.axes[static_cast<std::size_t>(i)]);
    size[static_cast<std::size_t>(i)] = order.shape[static_cast<int>(axis)];
    step[static_cast<std::size_t>(i)] = strides[axis];
  }
  std::size_t file = 0;
  for (std::int64_t a = 0; a < size[0]; ++a)
    for (std::int64_t b = 0; b < size[1]; ++b)
      for (std::int64_t c = 0; c < size[2]; ++c)
        for (std::int64_t d = 0; d < size[3]; ++d)
          act(file++, static_cast<std::size_t>(a * step[0] + b * step[1] + c * step[2] + d * step[3]));
}

}  // namespace

void to_file_order(const FileOrder& order, ConstTensor memory, Tensor file) {
  const std::size_t size = size_of(memory.dtype);
  each_element(order, [&](std::size_t in_file, std::size_t in_memory) {
    std::memcpy(file.data + in_file * size, memory.data + in_memory * size, size);
  });
}

void from_file_order(const FileOrder& order, ConstTensor file, Tensor memory) {
  const std::size_t size = size_of(memory.dtype);
  each_element(order, [&](std::size_t in_file, std::size_t in_memory) {
    std::memcpy(memory.data + in_memory * size, file.data + in_file * size, size);
  });
}

}  // namespace qtrain
