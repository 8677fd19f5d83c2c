#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "core/device.h"

/// What the device layer stands on. One of core/device/off.cpp, native.cpp and emulated.cpp is linked. Functions throw
/// qtrain::Error.
namespace qtrain::cuda {

std::string problem();
int device_count();
extern const bool kEmulated;
DeviceInfo info(int index);
void select(int index);

/// nullptr if it does not fit.
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

/// Queues a call of `act`, by which the later work of the stream waits. Not recorded.
void call(void* stream, std::function<void()> act);

void* create_event(int index);
void destroy_event(void* event);
void record(void* event, void* stream);
void wait(void* stream, void* event);
bool event_done(void* event);
/// From any thread, without an effect on when queued work runs.
bool event_passed(void* event);
void synchronize_event(void* event);
double milliseconds(void* from, void* to);

/// Ranges of the calling thread for a profiler (NVTX); one that ends was begun last.
void push_range(const char* name) noexcept;
void pop_range() noexcept;

/// Between `begin` and `end` (or `drop`, after an error) what the calling thread queues on the stream is recorded and
/// not run. The graph may be replayed on any stream of the device; nullptr where nothing was recorded.
void begin_record(void* stream);
void* end_record(void* stream);
/// By the calling thread.
bool is_recorded(void* stream);
void drop_record(void* stream) noexcept;
void replay(void* graph, void* stream);
void destroy_graph(void* graph) noexcept;
/// Whether the backend can tell if two graphs record the same.
bool compares_graphs();
void require_same_graph(void* graph, void* again);

/// Bytes an arena leaves free behind each tensor, where the backend watches over accesses.
std::size_t guard_bytes();
/// An arena calls `fence` on memory that it will hand out in parts, and `open` on each part.
void fence(Span segment);
void open(Span part);
/// Queues that the contents of `scratch` are nobody's any more.
void forget(void* stream, Span scratch);

}  // namespace qtrain::cuda
