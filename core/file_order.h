#pragma once
#include <array>

#include "core/tensor.h"

namespace qtrain {

/// The order of a tensor's values in files, if it differs from that in memory.
struct FileOrder {
  Shape shape;                ///< of the values in memory
  std::array<int, 4> axes{};  ///< axis i in files is axis axes[i] of them
  Shape in_files;             ///< of the tensor there

  /// A matrix [rows, columns] that files hold as [columns, rows].
  static FileOrder transposed(std::int64_t rows, std::int64_t columns) {
    return {.shape = {rows, columns}, .axes = {1, 0}, .in_files = {columns, rows}};
  }
};

/// Copies values of one type from the order of memory to that of files, and back.
void to_file_order(const FileOrder& order, ConstTensor memory, Tensor file);
void from_file_order(const FileOrder& order, ConstTensor file, Tensor memory);

}  // namespace qtrain
