#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/context.h"
#include "tests/kernels/support.h"

namespace qtrain::testing {

inline constexpr Device kCuda{DeviceKind::cuda, 0};

/// While this object exists, arrays are on the CUDA device.
class OnDevice {
 public:
  OnDevice() { array_device() = kCuda; }
  ~OnDevice() { array_device() = {}; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

/// Runs `body` in each order in which the work of a device may happen (under the harness: threads and blocks forward,
/// in reverse and at random, copies and streams late and early; on a GPU: a few times).
void for_each_schedule(const std::function<void()>& body);

/// Runs `body` on a device of another compute capability (75 for 7.5), with its instructions and shared memory. Does
/// nothing on a GPU.
void with_capability(int capability, const std::function<void()>& body);

}  // namespace qtrain::testing
