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

/// The emulated CUDA device: memory at fixed addresses with a state per byte, and streams whose work runs when somebody
/// waits for it. Kernel execution is built on top of it.
namespace qtrain::emulation {

/// The execution order of the threads of a block and of the blocks of a grid.
enum class Order : std::uint8_t { forward, reverse, random };
/// When queued work or an asynchronous copy happens: as late as a correct program allows, as early as possible, or at
/// random.
enum class Timing : std::uint8_t { late, early, random };

struct Settings {
  Order order = Order::forward;
  Timing streams = Timing::late;
  Timing copies = Timing::late;  ///< cp.async, copies of boxes, and wgmma
  std::uint64_t seed = 1;
  int host_threads = 0;                             ///< number of threads that run blocks; 0: one per processor
  std::size_t memory_bytes = std::size_t{8} << 30;  ///< device memory
  int capability = 90;                              ///< compute capability, 10 * major + minor
  int devices = 1;                                  ///< number of devices, which share the memory
  std::string ptx = {};                             ///< folder with the PTX of nvcc; if set, that runs instead
  bool gemm_library = false;                        ///< GEMMs run as on a GPU, with the stand-in for cuBLASLt

  ComputeCapability compute() const { return {capability / 10, capability % 10}; }
  /// Maximum shared memory per block.
  std::size_t shared_bytes() const;
};

/// Parses "order=random,seed=7,streams=early" on top of the defaults. Throws a usage error for unknown items.
Settings parse_settings(std::string_view text);

/// The settings of this process, initially from QTRAIN_EMULATION.
Settings& settings();

/// Address ranges, fixed so that an address alone shows what it belongs to.
inline constexpr std::uintptr_t kRegion = kThreadSanitizer ? 0x7e90'0000'0000 : 0x2000'0000'0000;
inline constexpr std::size_t kDeviceBytes = std::size_t{kThreadSanitizer ? 64 : 1024} << 30;
inline constexpr std::uintptr_t kDeviceBase = kRegion;
/// Shared memory is at the end of the device's addresses: one range per host thread that runs blocks.
inline constexpr int kMaxHostThreads = 128;
inline constexpr std::size_t kSharedStretch = std::size_t{1} << 20;
inline constexpr std::uintptr_t kSharedBase = kDeviceBase + kDeviceBytes - kMaxHostThreads * kSharedStretch;
/// One byte of state per byte of memory.
inline constexpr std::uintptr_t kStateBase = 0x3000'0000'0000;
/// The last write and the last read of every two bytes. Accesses to single bytes have other records (memory.h).
inline constexpr std::uintptr_t kWriteBase = 0x4000'0000'0000;
inline constexpr std::uintptr_t kReadBase = kWriteBase + 4 * kDeviceBytes;

/// Whether bytes have states; address and thread sanitizers check memory in their own way.
inline constexpr bool kStates = !kAddressSanitizer && !kThreadSanitizer;

/// `untouched` bytes are uninitialized if they are in an allocation, and invalid otherwise; `fenced` bytes are in a
/// segment but in no tensor; those of an `mbarrier` are only for its instructions.
enum class State : std::uint8_t { untouched, uninitialized, initialized, in_flight, fenced, mbarrier };

inline bool is_device_address(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p) - kDeviceBase < kDeviceBytes;
}
/// A pointer to an address of the ranges above.
inline void* at_address(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): there is no pointer to start from
}
inline State* state_of(const void* p) {
  return static_cast<State*>(at_address(kStateBase + (reinterpret_cast<std::uintptr_t>(p) - kDeviceBase)));
}

/// Whether all of the bytes are in one allocation.
bool is_allocated(const void* p, std::size_t bytes);
/// Sets the state of memory, and fills memory without a value with NaN.
void mark(void* p, std::size_t bytes, State state);
/// Checks for work that the host does on behalf of the device; `what` names it in the error.
void check_readable(const void* p, std::size_t bytes, std::string_view what);
void check_writable(const void* p, std::size_t bytes, std::string_view what);

/// The concatenated bytes of the values, with padding as zeros.
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

/// Bytes that work reads or writes, in device or page-locked memory.
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

/// Work for a stream. `name` and `inputs` describe what it depends on, so that two recordings can be compared.
/// `touches`: what it reads and writes, if that is known before it runs (not for kernels).
struct Work {
  std::function<void()> run;
  std::string name;
  std::vector<std::byte> inputs = {};
  std::vector<Touch> touches = {};
};
/// Appends work to a stream (null is the default stream), or to the stream's recording.
void enqueue(void* stream, Work work);

struct NamedTouch {
  Touch touch;
  std::string name;  ///< name of the work
};
/// What other work may access concurrently with the work that is running, because neither waits for the other.
std::vector<NamedTouch> touches_beside();

/// Device memory is accessible while one of these exists; at other times, access by the host faults.
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
