#include "core/file_order.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace qtrain::testing {
namespace {

/// The index in memory of each value of a file, computed one by one.
std::vector<std::int64_t> places(const FileOrder& order) {
  std::array<std::int64_t, 4> strides{}, size{1, 1, 1, 1}, step{};
  std::int64_t elements = 1;
  for (int i = order.shape.rank - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] = elements;
    elements *= order.shape[i];
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(order.shape.rank); ++i) {
    size[i] = order.shape[order.axes[i]];
    step[i] = strides[static_cast<std::size_t>(order.axes[i])];
  }
  std::vector<std::int64_t> all;
  for (std::int64_t a = 0; a < size[0]; ++a)
    for (std::int64_t b = 0; b < size[1]; ++b)
      for (std::int64_t c = 0; c < size[2]; ++c)
        for (std::int64_t d = 0; d < size[3]; ++d) all.push_back(a * step[0] + b * step[1] + c * step[2] + d * step[3]);
  return all;
}

FileOrder order_of(const Shape& shape, std::array<int, 4> axes) {
  return {.shape = shape, .axes = axes, .in_files = {shape.numel()}};
}

template <class T>
void expect_order(const FileOrder& order) {
  const std::vector<std::int64_t> expected = places(order);
  const auto n = static_cast<std::int64_t>(expected.size());
  std::vector<T> memory(expected.size()), file(expected.size()), back(expected.size());
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<T>(i % 251);
  const auto view = [&](std::vector<T>& v) { return view_of(std::span<T>(v), {n}); };
  to_file_order(order, view(memory), view(file));
  for (std::size_t i = 0; i < file.size(); ++i)
    ASSERT_EQ(static_cast<double>(file[i]), static_cast<double>(memory[static_cast<std::size_t>(expected[i])]))
        << to_string(order.shape) << " at " << i;
  from_file_order(order, view(file), view(back));
  EXPECT_EQ(back, memory) << to_string(order.shape);
}

// Sizes below, at and above a tile; axes of length one; axes that stay adjacent.
TEST(FileOrder, IsThatOfValuesOneByOne) {
  const FileOrder orders[] = {
      FileOrder::transposed(3, 5),          FileOrder::transposed(32, 64),         FileOrder::transposed(33, 65),
      FileOrder::transposed(1, 7),          FileOrder::transposed(7, 1),           FileOrder::transposed(1, 1),
      order_of({2, 5, 7, 3}, {0, 2, 3, 1}), order_of({1, 40, 9, 4}, {0, 2, 3, 1}), order_of({2, 1, 9, 4}, {0, 2, 3, 1}),
      order_of({2, 3, 4, 5}, {1, 0, 2, 3}), order_of({2, 3, 4, 5}, {3, 2, 1, 0}),  order_of({2, 3, 4, 5}, {0, 1, 2, 3}),
      order_of({4, 3, 5}, {2, 0, 1})};
  for (const FileOrder& order : orders) {
    expect_order<float>(order);
    expect_order<double>(order);
    expect_order<Bf16>(order);
    expect_order<std::uint8_t>(order);
  }
}

TEST(FileOrder, OfNothingIsNothing) {
  FileOrder order = FileOrder::transposed(0, 3);
  std::vector<float> none;
  const Tensor t = view_of(std::span<float>(none), {0});
  to_file_order(order, t, t);
  from_file_order(order, t, t);
}

}  // namespace
}  // namespace qtrain::testing
