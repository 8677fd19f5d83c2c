#pragma once
#include <array>

#include "core/tensor.h"

namespace qtrain {

/// The order of a tensor's values in files, if it differs from that in memory.
struct FileOrder {
  Shape shape;                ///< in memory
  std::array<int, 4> axes{};  ///< axis i in files is axis axes[i] in memory
  Shape in_files;             ///< the shape in files

  /// A matrix [rows, columns] that files store as [columns, rows].
  static FileOrder transposed(std::int64_t rows, std::int64_t columns) {
    return {.shape = {rows, columns}, .axes = {1, 0}, .in_files = {columns, rows}};
  }
};

/// Copy values from memory order to file order, and back. The dtypes must be equal.
void to_file_order(const FileOrder& order, ConstTensor memory, Tensor file);
void from_file_order(const FileOrder& order, ConstTensor file, Tensor memory);

}  // namespace qtrain
