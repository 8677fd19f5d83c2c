#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/build.h"
#include "core/device.h"
#include "core/gpu_architectures.h"

/// The emulated CUDA device: memory at fixed addresses with a state for each byte, and streams that run when somebody
/// waits for them. The execution of kernels stands on it (emulator).
namespace qtrain::emulation {

/// The order of the threads of a block and of the blocks of a grid.
enum class Order : std::uint8_t { forward, reverse, random };
/// When queued work or an asynchronous copy takes place: as late as correct programs allow, as early, or either.
enum class Timing : std::uint8_t { late, early, random };

struct Settings {
  Order order = Order::forward;
  Timing streams = Timing::late;
  Timing copies = Timing::late;  ///< cp.async
  std::uint64_t seed = 1;
  int host_threads = 0;                             ///< that run blocks; 0: one per processor
  std::size_t memory_bytes = std::size_t{8} << 30;  ///< of the device
  int capability = 90;                              ///< compute capability, 10 * major + minor
  int devices = 1;                                  ///< that there are, of the same memory
  std::string ptx = {};                             ///< folder of the kernels as nvcc compiled them, which then run

  ComputeCapability compute() const { return {capability / 10, capability % 10}; }
  /// Most shared memory of one block.
  std::size_t shared_bytes() const;
};

/// "order=random,seed=7,streams=early": over the defaults. A usage error for anything it does not know.
Settings parse_settings(std::string_view text);

/// The settings of this process; QTRAIN_EMULATION gives the first ones.
Settings& settings();

/// Parts of the address space, fixed so that a look at an address tells what it is.
inline constexpr std::uintptr_t kRegion = kThreadSanitizer ? 0x7e90'0000'0000 : 0x2000'0000'0000;
inline constexpr std::size_t kDeviceBytes = std::size_t{kThreadSanitizer ? 64 : 1024} << 30;
inline constexpr std::uintptr_t kDeviceBase = kRegion;
/// Shared memory is the end of the device's addresses: one stretch for each host thread that runs blocks.
inline constexpr int kMaxHostThreads = 128;
inline constexpr std::size_t kSharedStretch = std::size_t{1} << 20;
inline constexpr std::uintptr_t kSharedBase = kDeviceBase + kDeviceBytes - kMaxHostThreads * kSharedStretch;
/// One byte of state for each byte of memory.
inline constexpr std::uintptr_t kStateBase = 0x3000'0000'0000;
/// The last write of each two bytes, and (shared memory only) the last read.
inline constexpr std::uintptr_t kWriteBase = 0x4000'0000'0000;
inline constexpr std::uintptr_t kReadBase = kWriteBase + 4 * kDeviceBytes;

/// Whether bytes have states; address and thread sanitizers watch over memory in their own way.
inline constexpr bool kStates = !kAddressSanitizer && !kThreadSanitizer;

/// `untouched` bytes are uninitialized if they lie in an allocation, and nobody's otherwise; `fenced` ones lie in a
/// segment but in no tensor.
enum class State : std::uint8_t { untouched, uninitialized, initialized, in_flight, fenced };

inline bool is_device_address(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) - kDeviceBase < kDeviceBytes;
}
/// Memory at an address that the layout above fixes.
inline void* at_address(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): there is no pointer to start from
}
inline State* state_of(const void* p) {
  return static_cast<State*>(at_address(kStateBase + (reinterpret_cast<std::uintptr_t>(p) - kDeviceBase)));
}

/// Whether all of it lies in one allocation.
bool is_allocated(const void* p, std::size_t bytes);
/// Marks memory, with NaN for what has no value.
void mark(void* p, std::size_t bytes, State state);
/// For work that the host does on behalf of the device; `what` names it in the error.
void check_readable(const void* p, std::size_t bytes, std::string_view what);
void check_writable(const void* p, std::size_t bytes, std::string_view what);

/// The bytes of values one after the other, padding as zeros.
template <class... T>
std::vector<std::byte> bytes_of(T... values) {
  static_assert((std::is_trivially_copyable_v<T> && ...));
  std::vector<std::byte> bytes((sizeof values + ...));
  std::byte* to = bytes.data();
  const auto append = [&](auto& value) {
    clear_padding(value);
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  };
  (append(values), ...);
  return bytes;
}

/// Bytes that work reads or writes, of the device or page-locked.
struct Touch {
  const void* data;
  std::size_t bytes;
  bool writes;
};
inline Touch reads(const void* data, std::size_t bytes) {
  return {data, bytes, false};
}
inline Touch writes(const void* data, std::size_t bytes) {
  return {data, bytes, true};
}
inline bool overlaps(const Touch& t, const void* data, std::size_t bytes) {
  const auto a = reinterpret_cast<std::uintptr_t>(t.data), b = reinterpret_cast<std::uintptr_t>(data);
  return a < b + bytes && b < a + t.bytes;
}

/// What a stream is given to do. `name` and `inputs` say what it depends on, so that two records of work can be held
/// against each other. `touches`: what it reads and writes, where that is known before it runs (not of kernels).
struct Work {
  std::function<void()> run;
  std::string name;
  std::vector<std::byte> inputs = {};
  std::vector<Touch> touches = {};
};
/// Appends work to a stream (the null pointer is a stream of its own), or to the record that is made of it.
void enqueue(void* stream, Work work);

struct NamedTouch {
  Touch touch;
  std::string name;  ///< of the work
};
/// What may happen beside the work that is running, because neither waits for the other.
std::vector<NamedTouch> touches_beside();

/// Device memory can be touched while one of these lives; at other times the host that touches it is stopped.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

}  // namespace qtrain::emulation
