#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "core/nvtx.h"
#include "core/tensor.h"

/// Memory, streams and events of a device. Everything also works for Device{cpu}, immediately and in plain memory, so
/// callers need no special case. Errors of a device are ErrorKind::internal and name the last launches of the stream; a
/// failed allocation is ErrorKind::memory.
namespace qtrain {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::size_t total_bytes = 0, free_bytes = 0;
  std::size_t shared_bytes = 0;  ///< maximum shared memory per block
  int driver = 0, runtime = 0;   ///< versions, 1000 * major + 10 * minor
  bool emulated = false;         ///< the test harness emulates it on the CPU
};

/// Why no CUDA device can be used, as one clause ("this build has no CUDA backend"); empty if one can.
std::string cuda_problem();
int cuda_device_count();
/// Whether CUDA devices are emulated by the test harness.
bool cuda_is_emulated();
/// Throws ErrorKind::usage if there is no such device.
DeviceInfo cuda_info(int index = 0);

/// Makes it the current device of the calling thread, for libraries that use the current device.
void select(Device device);

/// Waits for all streams of the device and throws their errors.
void synchronize(Device device);

/// Bytes of all DeviceMemory on the devices of one kind: the current and the peak amount.
struct AllocatedBytes {
  std::size_t now = 0, peak = 0;
};
AllocatedBytes allocated_bytes(DeviceKind kind);

/// Uninitialized memory of a device. Freeing it waits for the work that is queued on the device.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// `purpose` names it in the error.
  DeviceMemory(Device device, std::size_t bytes, std::string_view purpose = "scratch memory");
  ~DeviceMemory() { release(); }
  DeviceMemory(DeviceMemory&& other) noexcept { swap(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  void release();
  void swap(DeviceMemory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Uninitialized page-locked host memory. Only copies from and to such memory are asynchronous.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(Device device, std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept { swap(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(PinnedMemory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A point in the work of a stream, set by Stream::record. An event that was never recorded counts as done.
class Event {
 public:
  explicit Event(Device device = {});
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  bool done() const;
  /// Like `done`, for a thread that only observes: under the harness, `done` executes queued work, and this does not.
  bool has_passed() const;
  void synchronize() const;
  /// Milliseconds between two events, both of which must be done.
  double milliseconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  Device device_;
  void* handle_ = nullptr;
};

/// One piece of work that a stream queues.
struct Launched {
  const char* name;          ///< the op's name, in static storage
  std::string detail = {};   ///< sizes and types, for ops whose launches differ a lot
  bool is_transfer = false;  ///< a copy or a fill
};

/// Observes the work of a stream, before and after each piece is queued. What `end` throws is rethrown by the next wait
/// for the stream.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  virtual void begin(const Launched& launched) = 0;
  virtual void end() = 0;
};

/// A queue of work in order. Streams of one device run concurrently unless they wait for events.
class Stream {
 public:
  explicit Stream(Device device = {});
  ~Stream();
  Stream(Stream&& other) noexcept
      : device_(other.device_),
        handle_(std::exchange(other.handle_, nullptr)),
        check_(std::move(other.check_)),
        observer_(other.observer_),
        recent_(other.recent_),
        launches_(other.launches_) {}
  Stream& operator=(Stream&&) = delete;

  Device device() const { return device_; }
  /// Queues a copy of `bytes` bytes in any direction. Pinned and device memory must not change until the copy is done.
  void copy(void* to, const void* from, std::size_t bytes);
  /// Queues setting each byte to `value`.
  void fill(void* to, std::uint8_t value, std::size_t bytes);
  void record(Event& event);
  /// Later work of this stream starts after `event`.
  void wait(const Event& event);
  /// Waits for all queued work and throws its errors.
  void synchronize();
  /// Calls `check` after each of these waits; it throws if queued work did not complete.
  void check_after_waits(std::function<void()> check) { check_ = std::move(check); }

  /// Queues a call of `act` on a thread of the driver; later work waits until it returns. `act` must not use the
  /// device.
  void call(std::function<void()> act);

  /// The scope in which one op queues its work. Errors and profilers show its name, which has static storage; `detail`
  /// is called only if the stream is observed.
  class Launch {
   public:
    Launch(Stream& stream, const char* name) : Launch(stream, name, [] { return std::string(); }) {}
    template <class F>
    Launch(Stream& stream, const char* name, F&& detail) : stream_(stream), range_(name) {
      stream.recent_[stream.launches_++ % stream.recent_.size()] = name;
      if (notifies()) notify({.name = name, .detail = detail()});
    }
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    friend class Stream;
    enum class Kind : std::uint8_t { transfer };
    Launch(Stream& stream, const char* name, Kind) : stream_(stream), range_(name) {
      if (notifies()) notify({.name = name, .is_transfer = true});
    }
    bool notifies() const { return stream_.observer_ && !stream_.observed_; }
    void notify(const Launched& launched);

    Stream& stream_;
    nvtx::Range range_;
    bool notified_ = false;
  };
  /// Calls `observer` for each piece of work from now on, except for nested launches; null ends this. The observer must
  /// outlive this stream or the next call.
  void observe(LaunchObserver* observer) { observer_ = observer; }
  bool is_observed() const { return observer_ != nullptr; }
  /// The names of the last launches, most recent last: "rms_norm, gemm".
  std::string recent_launches() const;
  std::uint64_t launches() const { return launches_; }
  /// The backend's own handle (cudaStream_t).
  void* handle() const { return handle_; }

 private:
  /// Adds the last launches to an error.
  template <class F>
  void name_launches(const F& wait) const;
  Device device_;
  void* handle_ = nullptr;
  std::function<void()> check_;
  LaunchObserver* observer_ = nullptr;
  bool observed_ = false;  ///< an observed launch is being queued
  std::array<const char*, 8> recent_{};
  std::uint64_t launches_ = 0;
};

}  // namespace qtrain
