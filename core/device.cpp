#include "core/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "core/device/backend.h"

namespace qtrain {
namespace {

bool is_cuda(Device d) {
  return d.kind == DeviceKind::cuda;
}

/// Bytes that this process has allocated on the devices of one kind.
struct Tally {
  std::atomic<std::size_t> now{0}, peak{0};

  static Tally& of(DeviceKind kind) {
    static std::array<Tally, 2> all;
    return all.at(static_cast<std::size_t>(kind));
  }
  void add(std::size_t bytes) {
    const std::size_t sum = now += bytes;
    for (std::size_t before = peak; before < sum && !peak.compare_exchange_weak(before, sum);) {
    }
  }
};

void* map_host(std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}

std::byte* claim(void* p, std::size_t bytes, std::string_view purpose) {
  if (!p)
    fail(ErrorKind::memory,
         {.cause = "cannot allocate " + std::to_string(bytes >> 20) + " MiB for " + std::string(purpose),
          .remedy = "lower per_device_train_batch_size or max_length"});
  return static_cast<std::byte*>(p);
}

}  // namespace

std::string cuda_problem() {
  return cuda::problem();
}
int cuda_device_count() {
  return cuda::device_count();
}
bool cuda_is_emulated() {
  return cuda::kEmulated;
}
DeviceInfo cuda_info(int index) {
  const std::string problem = cuda::problem();
  if (!problem.empty()) fail(ErrorKind::usage, {.cause = problem, .remedy = "use --device cpu"});
  return cuda::info(index);
}

void select(Device device) {
  if (is_cuda(device)) cuda::select(device.index);
}

void synchronize(Device device) {
  if (is_cuda(device)) cuda::synchronize_device(device.index);
}

DeviceMemory::DeviceMemory(Device device, std::size_t bytes, std::string_view purpose)
    : device_(device), bytes_(std::max<std::size_t>(bytes, 1)) {
  data_ = claim(is_cuda(device) ? cuda::allocate(device.index, bytes_) : map_host(bytes_), bytes_, purpose);
  Tally::of(device.kind).add(bytes_);
}

void DeviceMemory::release() {
  if (!data_) return;
  if (is_cuda(device_))
    cuda::release(device_.index, data_);
  else
    munmap(data_, bytes_);
  data_ = nullptr;
  Tally::of(device_.kind).now -= bytes_;
}

AllocatedBytes allocated_bytes(DeviceKind kind) {
  const Tally& tally = Tally::of(kind);
  return {.now = tally.now, .peak = tally.peak};
}

PinnedMemory::PinnedMemory(Device device, std::size_t bytes)
    : device_(device), bytes_(std::max<std::size_t>(bytes, 1)) {
  data_ = claim(is_cuda(device) ? cuda::allocate_pinned(bytes_) : map_host(bytes_), bytes_, "pinned memory");
}

PinnedMemory::~PinnedMemory() {
  if (!data_) return;
  if (is_cuda(device_))
    cuda::release_pinned(data_);
  else
    munmap(data_, bytes_);
}

Event::Event(Device device) : device_(device) {
  if (is_cuda(device)) handle_ = cuda::create_event(device.index);
}
Event::~Event() {
  if (handle_) cuda::destroy_event(handle_);
}
bool Event::done() const {
  return !handle_ || cuda::event_done(handle_);
}
bool Event::has_passed() const {
  return !handle_ || cuda::event_passed(handle_);
}
void Event::synchronize() const {
  if (handle_) cuda::synchronize_event(handle_);
}
double Event::milliseconds_since(const Event& earlier) const {
  return handle_ ? cuda::milliseconds(earlier.handle_, handle_) : 0;
}

Stream::Stream(Device device) : device_(device) {
  if (is_cuda(device)) handle_ = cuda::create_stream(device.index);
}
Stream::~Stream() {
  if (handle_) cuda::destroy_stream(handle_);
}

template <class F>
void Stream::name_launches(const F& wait) const {
  try {
    wait();
  } catch (const Error& e) {
    if (launches_ == 0) throw;
    ErrorText text = e.text();
    text.remedy += (text.remedy.empty() ? "last launches: " : "; last launches: ") + recent_launches();
    fail(e.kind(), text);
  }
}

void Stream::call(std::function<void()> act) {
  if (handle_) return cuda::call(handle_, std::move(act));
  act();
}

void Stream::Launch::notify(const Launched& launched) {
  stream_.observed_ = notified_ = true;
  stream_.observer_->begin(launched);
}

Stream::Launch::~Launch() {
  if (!notified_) return;
  stream_.observed_ = false;
  try {
    stream_.observer_->end();
  } catch (const Error&) {  // the next wait for the stream throws it
  }
}

void Stream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const Launch launch(*this, "copy", Launch::Kind::transfer);
  if (handle_)
    name_launches([&] { cuda::copy(handle_, {to, bytes}, from); });  // may block if the host memory is not pinned
  else
    std::memmove(to, from, bytes);
}

void Stream::fill(void* to, std::uint8_t value, std::size_t bytes) {
  if (bytes == 0) return;
  const Launch launch(*this, "fill", Launch::Kind::transfer);
  if (handle_)
    cuda::fill(handle_, {to, bytes}, value);
  else
    std::memset(to, value, bytes);
}

void Stream::record(Event& event) {
  if (handle_) cuda::record(event.handle_, handle_);
}
void Stream::wait(const Event& event) {
  if (handle_) cuda::wait(handle_, event.handle_);
}

void Stream::synchronize() {
  if (handle_) name_launches([&] { cuda::synchronize(handle_); });
  if (check_) check_();
}

std::string Stream::recent_launches() const {
  std::string names;
  const std::uint64_t shown = std::min<std::uint64_t>(launches_, recent_.size());
  for (std::uint64_t i = launches_ - shown; i < launches_; ++i)
    names += (names.empty() ? "" : ", ") + std::string(recent_[i % recent_.size()]);
  return names;
}

}  // namespace qtrain
