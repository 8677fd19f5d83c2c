#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "core/device.h"

/// The backend of the device layer. One of core/device/off.cpp, core/device/native.cpp and emulator/device.cpp is
/// linked. Functions throw qtrain::Error.
namespace qtrain::cuda {

std::string problem();
int device_count();
extern const bool kEmulated;
DeviceInfo info(int index);
void select(int index);

/// Returns nullptr if there is not enough memory.
void* allocate(int index, std::size_t bytes);
void release(int index, void* p);
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* p);

void* create_stream(int index);
void destroy_stream(void* stream);
void synchronize(void* stream);
void synchronize_device(int index);

struct Span {
  void* data;
  std::size_t bytes;
};
void copy(void* stream, Span to, const void* from);
void fill(void* stream, Span to, std::uint8_t value);

/// Queues a call of `act`; later work of the stream waits until it returns. It cannot be recorded.
void call(void* stream, std::function<void()> act);

void* create_event(int index);
void destroy_event(void* event);
void record(void* event, void* stream);
void wait(void* stream, void* event);
bool event_done(void* event);
/// The same from any thread, without affecting when queued work runs.
bool event_passed(void* event);
void synchronize_event(void* event);
double milliseconds(void* from, void* to);

/// Push and pop nested profiler ranges (NVTX) of the calling thread.
void push_range(const char* name) noexcept;
void pop_range() noexcept;

/// Between `begin` and `end` (or `drop`, after an error) what the calling thread queues on the stream is recorded
/// instead of run. The graph may be replayed on any stream of the device; it is nullptr if nothing was recorded.
void begin_record(void* stream);
void* end_record(void* stream);
/// Whether the calling thread is recording.
bool is_recorded(void* stream);
void drop_record(void* stream) noexcept;
void replay(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;
/// Whether the backend can compare graphs.
bool compares_graphs();
void require_same_graph(void* graph, void* again);

/// Bytes that an arena leaves free after each tensor, if the backend checks accesses.
std::size_t guard_bytes();
/// An arena calls `fence` on memory that it will hand out in parts, and `open` on each part.
void fence(Span segment);
void open(Span part);
/// Queues a mark that the contents of `scratch` are no longer valid.
void forget(void* stream, Span scratch);

}  // namespace qtrain::cuda
