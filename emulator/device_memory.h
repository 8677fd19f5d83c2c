#pragma once
#include <cstddef>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "emulator/device.h"

namespace qtrain::emulation {

/// The memory of the emulated device. Addresses are never reused, so that freed memory stays recognizable.
class DeviceHeap {
 public:
  static DeviceHeap& instance();

  void* allocate(std::size_t bytes);
  /// Returns false if nothing was allocated there.
  bool release(void* p);
  bool contains(const void* p, std::size_t bytes);
  std::size_t used() const { return used_; }

  std::recursive_mutex& mutex() { return mutex_; }
  void open();
  void close();

 private:
  DeviceHeap();
  void protect(int protection) const;

  std::recursive_mutex mutex_;
  std::shared_mutex blocks_mutex_;  // kernel threads look up blocks while another thread holds mutex_
  std::map<std::uintptr_t, std::size_t> blocks_;
  std::uintptr_t next_ = kDeviceBase;
  std::size_t used_ = 0;
  int opened_ = 0;
};

/// Copies device memory to the host; bytes without a value arrive as NaN.
void copy_to_host(void* to, const void* from, std::size_t bytes);

}  // namespace qtrain::emulation
