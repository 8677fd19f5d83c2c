#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/context.h"

/// Transfers between host memory and the memory of a context's device, all on the stream of the context. On the CPU
/// both are the same, and data that can be used in place is not copied.
namespace qtrain {

/// Hands the contents of `from` to `take` in chunks, in order, as flat host tensors; the next chunk is copied
/// meanwhile.
void read_chunks(Ctx& ctx, ConstTensor from, const std::function<void(ConstTensor chunk)>& take);

/// Fills `to`: `make(first, chunk)` writes the elements from number `first` on into a flat host tensor, which is copied
/// to the device while the next chunk is written. Chunks begin at multiples of 2^20 elements.
void write_chunks(Ctx& ctx, Tensor to, const std::function<void(std::int64_t first, Tensor chunk)>& make);

/// A double-buffered pinned staging buffer for small data that the host sends to the device again and again, without
/// waiting for the work that reads it.
class StagingBuffer {
 public:
  /// `bytes` is the capacity of one transfer; each part takes a multiple of 64 bytes.
  StagingBuffer(Device device, std::size_t bytes);

  /// Adds a part to the next transfer. The returned device view has these values from the next `send` to the one after
  /// it.
  template <class T>
  ConstTensor put(std::span<const T> values) {
    const std::size_t begin = append(std::as_bytes(values));
    return {device_.data() + begin, dtype_of<T>, {static_cast<std::int64_t>(values.size())}, device_.device()};
  }
  /// Queues the transfer; the work that is queued after it sees its values.
  void send(Ctx& ctx);

 private:
  std::size_t append(std::span<const std::byte> part);

  static constexpr std::size_t kBuffers = 2;  ///< on the host: one may wait for the device while the next is written
  DeviceMemory device_;
  PinnedMemory host_[kBuffers];
  Event sent_[kBuffers];
  std::size_t next_ = 0, used_ = 0;
};

/// A few f64 numbers on the device that ops add to and the host reads occasionally.
class DeviceNumbers {
 public:
  DeviceNumbers(Device device, int count);
  /// Bytes of device memory for `count` numbers.
  static std::size_t bytes(int count) { return static_cast<std::size_t>(count) * sizeof(double); }
  /// f64 [count]
  Tensor all() const { return all_; }
  /// f64 [1]
  Tensor operator[](int i) const { return all_.slice(i, 1); }
  /// Sets all to 0.
  void clear(Ctx& ctx);
  /// Waits for queued work and returns the numbers.
  std::vector<double> read(Ctx& ctx) const;

 private:
  DeviceMemory memory_;
  PinnedMemory host_;
  Tensor all_;
};

/// Makes device data available to the host for reading and writing.
class HostCopy {
 public:
  explicit HostCopy(Device device) : device_(device) {}
  /// `from` itself on the CPU, else a copy that lasts until the next call. Waits for queued work.
  Tensor of(Ctx& ctx, Tensor from);

 private:
  Device device_;
  PinnedMemory memory_;
};

}  // namespace qtrain
