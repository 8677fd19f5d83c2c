#pragma once
#include <cstddef>
#include <string>

#include "core/device.h"
#include "core/tensor.h"

namespace qtrain {

/// A named segment of device memory that hands out tensors one after the other and never frees one by itself.
/// Before `commit` it only measures: tensors have shapes and no storage. The caller runs the same layout code twice,
/// so planned bytes and used bytes cannot differ; asking for more than was planned is an internal error.
class Arena {
 public:
  explicit Arena(std::string name, Device device = {}) : name_(std::move(name)), device_(device) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A tensor aligned to 64 bytes (256 on a CUDA device); uninitialised. Without storage while measuring.
  Tensor take(DType dtype, Shape shape);

  /// Allocates the high-water mark of what was taken since construction and starts over. Throws ErrorKind::memory.
  void commit();
  /// Everything taken so far may be handed out again.
  void reset() { used_ = 0; }

  bool committed() const { return memory_.data() != nullptr; }
  const std::string& name() const { return name_; }
  Device device() const { return device_; }
  std::size_t used() const { return used_; }
  /// Bytes planned: the largest `used` ever seen.
  std::size_t planned() const { return planned_; }

 private:
  std::string name_;
  Device device_;
  DeviceMemory memory_;
  std::size_t used_ = 0, planned_ = 0;
};

}  // namespace qtrain
