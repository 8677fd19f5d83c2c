#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/device/backend.h"
#include "emulator/device_memory.h"
#include "emulator/driver.h"

namespace qtrain::cuda {

using namespace emulation;

namespace {

/// Throws during recording, and for an event that was recorded in a graph, which has no time of its own.
void require_past(const Point& point) {
  Driver::instance().outside_of_records("an event is queried");
  check(!point.mark.stream, "an event of a recorded graph is queried");
}

void copy_now(void* to, const void* from, std::size_t bytes) {
  const bool to_device = is_device_address(to), from_device = is_device_address(from);
  if (to_device) check_writable(to, bytes, "a copy");
  if (from_device && !is_allocated(from, bytes))
    fail(ErrorKind::internal, {.cause = "a copy reads outside the memory that was allocated"});
  if (from_device && !to_device) return copy_to_host(to, from, bytes);
  std::memmove(to, from, bytes);
  if (!kStates || !to_device) return;
  if (from_device)
    std::memmove(state_of(to), state_of(from), bytes);
  else
    std::memset(state_of(to), static_cast<int>(State::initialized), bytes);
}

}  // namespace

std::string problem() {
  return architecture_problem("native", settings().compute());
}
const bool kEmulated = true;
int device_count() {
  return settings().devices;
}
void select(int index) {
  if (index < 0 || index >= device_count())
    fail(ErrorKind::usage, {.cause = "there is no CUDA device " + std::to_string(index)});
  Driver::instance().select(index);
}
DeviceInfo info(int index) {
  select(index);
  const Settings& s = settings();
  return {.name = "execution harness on the CPU",
          .major = s.compute().major,
          .minor = s.compute().minor,
          .multiprocessors = 4,
          .total_bytes = s.memory_bytes,
          .free_bytes = s.memory_bytes - DeviceHeap::instance().used(),
          .shared_bytes = s.shared_bytes(),
          .driver = 13000,
          .runtime = 13000,
          .emulated = true};
}

void* allocate(int index, std::size_t bytes) {
  select(index);
  Driver::instance().outside_of_records("device memory is allocated");
  return DeviceHeap::instance().allocate(bytes);
}
void release(int, void* p) {
  if (const auto& recording = Driver::instance().recording()) return recording->refuse_at_end("device memory is freed");
  for (const auto& queue : Driver::instance().all()) drain_quietly(*queue);
  DeviceHeap::instance().release(p);
}
void* allocate_pinned(std::size_t bytes) {
  Driver::instance().outside_of_records("page-locked memory is allocated");
  return Driver::instance().pin(bytes);
}
void release_pinned(void* p) {
  if (const auto& recording = Driver::instance().recording()) recording->refuse_at_end("page-locked memory is freed");
  for (const auto& queue : Driver::instance().all()) drain_quietly(*queue);
  Driver::instance().unpin(p);
}

void* create_stream(int index) {
  select(index);
  DeviceHeap::instance();  // creates the memory first, so that it outlives the streams that use it
  return Driver::instance().add_queue();
}
void destroy_stream(void* stream) {
  drain_quietly(*Driver::instance().queue(stream));
  Driver::instance().remove_queue(stream);
}
void synchronize(void* stream) {
  Driver::instance().outside_of_records("the host waits for a stream");
  const auto queue = Driver::instance().queue(stream);
  drain_for_host(*queue, queue->queued, queue->reached());
}
void synchronize_device(int) {
  Driver::instance().outside_of_records("the host waits for the device");
  for (const auto& queue : Driver::instance().all()) drain_for_host(*queue, queue->queued, queue->reached());
}

void copy(void* stream, Span to, const void* from) {
  Driver& driver = Driver::instance();
  const auto pageable = [&](const void* p) { return !is_device_address(p) && !driver.is_pinned(p); };
  if (pageable(from) || pageable(to.data)) driver.outside_of_records("memory that is not page-locked is copied");
  std::vector<std::byte> inputs = bytes_of(to.data, to.bytes, from);
  if (pageable(from)) {  // CUDA copies pageable memory before it returns
    const auto* bytes = static_cast<const std::byte*>(from);
    enqueue(stream, {.run = [to, staged = std::vector<std::byte>(
                                     bytes, bytes + to.bytes)] { copy_now(to.data, staged.data(), staged.size()); },
                     .name = "copy",
                     .inputs = std::move(inputs),
                     .touches = {writes(to.data, to.bytes)}});
  } else {
    enqueue(stream, {.run = [to, from] { copy_now(to.data, from, to.bytes); },
                     .name = "copy",
                     .inputs = std::move(inputs),
                     .touches = {writes(to.data, to.bytes), reads(from, to.bytes)}});
  }
  if (pageable(to.data)) synchronize(stream);
}
void fill(void* stream, Span to, std::uint8_t value) {
  const auto run = [to, value] {
    check_writable(to.data, to.bytes, "a fill");
    std::memset(to.data, value, to.bytes);
    if (kStates) std::memset(state_of(to.data), static_cast<int>(State::initialized), to.bytes);
  };
  enqueue(stream, {.run = run,
                   .name = "fill",
                   .inputs = bytes_of(to.data, to.bytes, value),
                   .touches = {writes(to.data, to.bytes)}});
}

void call(void* stream, std::function<void()> act) {
  Driver::instance().outside_of_records("the host is called");
  enqueue(stream, {.run = std::move(act), .name = "call"});
}

void* create_event(int index) {
  select(index);
  return Driver::instance().add_point();
}
void destroy_event(void* event) {
  Driver::instance().remove_point(event);
}
void record(void* event, void* stream) {
  Point& point = Driver::instance().point(event);
  if (const auto& recording = Driver::instance().recording(); recording && recording->covers(stream)) {
    point.mark = recording->mark(stream);
    return;
  }
  point.mark = {};
  point.queue = Driver::instance().queue(stream);
  enqueue(stream, {.run = [time = point.time] { *time = std::chrono::steady_clock::now(); }, .name = "event"});
  point.ticket = point.queue->queued;
  point.reached = point.queue->reached();
}
void wait(void* stream, void* event) {
  if (Driver::instance().leaves_out_wait()) return;
  const Point& point = Driver::instance().point(event);
  const auto& recording = Driver::instance().recording();
  if (point.mark.stream) {
    check(recording && recording->mine(), "a stream waits for an event that was recorded in a graph");
    return recording->wait(stream, point.mark);
  }
  if (!point.queue) return;
  if (recording && recording->covers(stream)) recording->refuse("a stream waits for work from before the recording");
  Driver::instance().queue(stream)->seen.see(point.reached);
  enqueue(stream, {.run = [queue = point.queue, ticket = point.ticket] { drain(*queue, ticket); }, .name = "wait"});
}
bool event_done(void* event) {
  const Point& point = Driver::instance().point(event);
  require_past(point);
  if (!point.queue) return true;
  if (point.queue->done >= point.ticket) {
    Driver::instance().settle(point.reached);
    return true;
  }
  drain(*point.queue, point.ticket);  // polling makes progress
  return false;
}
bool event_passed(void* event) {
  const Point& point = Driver::instance().point(event);
  return !point.queue || point.queue->done >= point.ticket;
}
void synchronize_event(void* event) {
  const Point& point = Driver::instance().point(event);
  require_past(point);
  if (point.queue) drain_for_host(*point.queue, point.ticket, point.reached);
}
double milliseconds(void* from, void* to) {
  const auto span = *Driver::instance().point(to).time - *Driver::instance().point(from).time;
  return std::chrono::duration<double, std::milli>(span).count();
}

void push_range(const char* name) noexcept {
  Ranges::instance().push(name);
}
void pop_range() noexcept {
  Ranges::instance().pop();
}

void begin_record(void* stream) {
  auto& recording = Driver::instance().recording();
  check(!recording, "two graphs are recorded at a time");
  recording = std::make_unique<Recording>(stream);
}
void* end_record(void* stream) {
  const std::unique_ptr<Recording> recording = std::move(Driver::instance().recording());
  std::shared_ptr<Record> record = recording->end(stream);
  return record->parts.empty() ? nullptr : Driver::instance().keep(std::move(record));
}
bool is_recorded(void* stream) {
  const auto& recording = Driver::instance().recording();
  return recording && recording->covers(stream);
}
void drop_record(void*) noexcept {
  Driver::instance().recording().reset();
}
void replay(void* graph, void* stream) {
  Driver::instance().outside_of_records("a graph is replayed");
  const auto run = [record = Driver::instance().graph(graph)] {
    for (const Record::Part& part : record->parts)
      if (part.work.run) part.work.run();
  };
  std::vector<Touch> touches;
  for (const Record::Part& part : Driver::instance().graph(graph)->parts)
    touches.insert(touches.end(), part.work.touches.begin(), part.work.touches.end());
  enqueue(stream, {.run = run, .name = "graph", .touches = std::move(touches)});
}
void destroy_graph(void* graph) noexcept {
  Driver::instance().forget(graph);
}
bool compares_graphs() {
  return true;
}
void require_same_graph(void* graph, void* again) {
  Driver::instance().graph(graph)->require_same(*Driver::instance().graph(again));
}

std::size_t guard_bytes() {
  return 256;
}
void fence(Span segment) {
  const Access access;
  mark(segment.data, segment.bytes, State::fenced);
}
void open(Span part) {
  if (part.bytes == 0) return;
  const Access access;
  if constexpr (!kStates) {
    if constexpr (kAddressSanitizer) mark(part.data, part.bytes, State::initialized);
    return;
  }
  State* s = state_of(part.data);
  for (std::size_t i = 0; i < part.bytes; ++i)
    if (s[i] == State::fenced) s[i] = State::uninitialized;
}
void forget(void* stream, Span scratch) {
  enqueue(stream, {.run = [scratch] { mark(scratch.data, scratch.bytes, State::uninitialized); },
                   .name = "scratch",
                   .inputs = bytes_of(scratch.data, scratch.bytes)});
}

}  // namespace qtrain::cuda
