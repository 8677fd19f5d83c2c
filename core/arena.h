#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/device.h"
#include "core/tensor.h"

namespace qtrain {

/// Where an arena allocates its memory.
enum class Placement : std::uint8_t {
  device,  ///< on the device
  pinned,  ///< page-locked host memory, for data that a device fetches on demand
};

/// A named segment of memory that hands out tensors one after the other and never frees them individually. Before
/// `commit` it only measures: tensors have shapes and no storage. The caller runs the same layout code twice, so
/// planned bytes and used bytes cannot differ; asking for more than was planned is an internal error.
class Arena {
 public:
  explicit Arena(std::string name, Device device = {}, Placement placement = Placement::device)
      : name_(std::move(name)), device_(device), placement_(placement) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A tensor aligned to 64 bytes (256 on a CUDA device); uninitialized. It has no storage while measuring. Pinned
  /// tensors are host tensors.
  Tensor take(DType dtype, Shape shape);
  /// Takes a tensor directly after the previous one; the type must allow that address.
  Tensor extend(DType dtype, Shape shape);

  /// Allocates the high-water mark measured since construction and starts over. Throws ErrorKind::memory.
  void commit();
  /// Makes everything taken so far available again.
  void reset() { rewind(0); }
  /// Sets the number of used bytes: memory beyond it becomes available again.
  void rewind(std::size_t used) { used_ = end_ = used; }

  bool committed() const { return committed_; }
  const std::string& name() const { return name_; }
  Device device() const { return device_; }
  Placement placement() const { return placement_; }
  std::size_t used() const { return used_; }
  /// Bytes planned: the largest `used` ever seen.
  std::size_t planned() const { return planned_; }

 private:
  Tensor place(std::size_t begin, DType dtype, Shape shape);
  bool on_cuda() const { return placement_ == Placement::device && device_.kind == DeviceKind::cuda; }

  std::string name_;
  Device device_;
  Placement placement_;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  bool committed_ = false;
  std::size_t used_ = 0, planned_ = 0;
  std::size_t end_ = 0;  ///< end of the last tensor, before `used_` is aligned
};

}  // namespace qtrain
