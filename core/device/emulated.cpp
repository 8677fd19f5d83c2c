#include "core/device/emulated.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/device/backend.h"
#include "core/device/emulated_memory.h"
#include "core/device/emulated_order.h"
#include "core/device/emulated_record.h"

namespace qtrain::emulation {
namespace {

struct Queued {
  std::function<void()> run;
  Stamp at;
};
struct Queue {
  std::deque<Queued> work;
  std::uint64_t number = 0, queued = 0, done = 0;
  Progress seen;  ///< of other streams, by what is queued next

  Progress reached() const {
    Progress all = seen;
    all.see(number, queued);
    return all;
  }
};

struct Point {
  Recording::Mark mark;  ///< of a recording, whose event it then is
  std::shared_ptr<Queue> queue;
  std::uint64_t ticket = 0;
  Progress reached;
  std::shared_ptr<std::chrono::steady_clock::time_point> time =
      std::make_shared<std::chrono::steady_clock::time_point>();
};

/// Streams, events and pinned memory of the process, as the driver of a GPU has them.
class Driver {
 public:
  static Driver& instance() {
    static Driver driver;
    return driver;
  }

  std::shared_ptr<Queue> queue(void* stream) {
    const std::lock_guard lock(mutex_);
    return queues_.at(stream);
  }
  void* add_queue() {
    const std::lock_guard lock(mutex_);
    auto queue = std::make_shared<Queue>();
    queue->number = ++numbers_;
    queues_.emplace(queue.get(), queue);
    return queue.get();
  }
  void remove_queue(void* stream) {
    const std::lock_guard lock(mutex_);
    queues_.erase(stream);
  }
  Point& point(void* event) {
    const std::lock_guard lock(mutex_);
    return *points_.at(event);
  }
  void* add_point() {
    const std::lock_guard lock(mutex_);
    auto point = std::make_unique<Point>();
    void* handle = point.get();
    points_.emplace(handle, std::move(point));
    return handle;
  }
  void remove_point(void* event) {
    const std::lock_guard lock(mutex_);
    points_.erase(event);
  }
  std::vector<std::shared_ptr<Queue>> all() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Queue>> list;
    for (const auto& [handle, queue] : queues_) list.push_back(queue);
    return list;
  }

  void* pin(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto memory = std::make_unique<std::byte[]>(bytes);
    void* p = memory.get();
    std::memset(p, 0xff, bytes);
    pinned_.emplace(p, std::pair{std::move(memory), bytes});
    return p;
  }
  void unpin(void* p) {
    const std::lock_guard lock(mutex_);
    pinned_.erase(p);
  }
  bool is_pinned(const void* p) {
    const std::lock_guard lock(mutex_);
    auto it = pinned_.upper_bound(const_cast<void*>(p));
    if (it == pinned_.begin()) return false;
    --it;
    return static_cast<const std::byte*>(p) < static_cast<const std::byte*>(it->first) + it->second.second;
  }
  void* keep(std::shared_ptr<Record> graph) {
    const std::lock_guard lock(mutex_);
    void* handle = graph.get();
    graphs_.emplace(handle, std::move(graph));
    return handle;
  }
  std::shared_ptr<Record> graph(void* handle) {
    const std::lock_guard lock(mutex_);
    return graphs_.at(handle);
  }
  void forget(void* graph) {
    const std::lock_guard lock(mutex_);
    graphs_.erase(graph);
  }
  std::unique_ptr<Recording>& recording() { return recording_; }
  /// Ends with an error what must not happen while the calling thread records.
  void outside_of_records(const char* what) const {
    if (recording_) recording_->refuse(what);
  }
  Stamp stamp(const Queue& queue) {
    const std::lock_guard lock(mutex_);
    return {.stream = queue.number, .ticket = queue.queued + 1, .sequence = ++sequence_, .before = queue.seen};
  }
  /// The host has waited for what was reached.
  void settle(const Progress& reached) {
    const std::lock_guard lock(mutex_);
    traffic_.settle(reached, ++sequence_);
    std::uint64_t oldest = sequence_;
    for (const auto& [handle, queue] : queues_)
      if (!queue->work.empty()) oldest = std::min(oldest, queue->work.front().at.sequence);
    traffic_.forget(oldest);
  }
  Traffic& traffic() { return traffic_; }
  const Stamp*& running() { return running_; }
  bool coin() {
    state_ = state_ * 6364136223846793005u + settings().seed * 2 + 1;
    return state_ >> 63;
  }

 private:
  std::recursive_mutex mutex_;
  std::map<void*, std::shared_ptr<Queue>> queues_;
  std::map<void*, std::unique_ptr<Point>> points_;
  std::map<void*, std::pair<std::unique_ptr<std::byte[]>, std::size_t>> pinned_;
  std::map<void*, std::shared_ptr<Record>> graphs_;
  std::unique_ptr<Recording> recording_;
  Traffic traffic_;
  const Stamp* running_ = nullptr;
  std::uint64_t state_ = 1, numbers_ = 0, sequence_ = 0;
};

/// The same for an event that was recorded in a graph, and has no time of its own.
void require_past(const Point& point) {
  Driver::instance().outside_of_records("an event is asked for");
  check(!point.mark.stream, "an event of a recorded graph is asked for");
}

/// An error ends the work of every stream, as on a GPU; the next work begins afresh.
void drop_all() {
  for (const auto& queue : Driver::instance().all()) {
    queue->work.clear();
    queue->done = queue->queued;
  }
  Driver::instance().traffic().clear();
}

void drain(Queue& queue, std::uint64_t ticket) {
  const Access access;
  while (queue.done < ticket) {
    const Queued work = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.done;
    const Stamp* outer = std::exchange(Driver::instance().running(), &work.at);  // which waits for this
    try {
      work.run();
    } catch (...) {
      Driver::instance().running() = nullptr;
      drop_all();
      throw;
    }
    Driver::instance().running() = outer;
  }
}

/// What the host does when it waits for a stream.
void drain_for_host(Queue& queue, std::uint64_t ticket, const Progress& reached) {
  drain(queue, ticket);
  Driver::instance().settle(reached);
}

/// Destructors wait without reporting: the error belongs to whoever synchronises.
void drain_quietly(Queue& queue) {
  try {
    drain_for_host(queue, queue.queued, queue.reached());
  } catch (const Error&) {
  }
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
    std::memset(state_of(to), static_cast<int>(State::initialised), bytes);
}

}  // namespace

void enqueue(void* stream, Work work) {
  if (Recording* recording = Driver::instance().recording().get(); recording && recording->covers(stream))
    return recording->add(stream, std::move(work));
  const auto queue = Driver::instance().queue(stream);
  Stamp at = Driver::instance().stamp(*queue);
  if (!work.touches.empty()) Driver::instance().traffic().add(at, work);
  queue->work.push_back({std::move(work.run), std::move(at)});
  ++queue->queued;
  const Timing timing = settings().streams;
  if (timing == Timing::early || (timing == Timing::random && Driver::instance().coin())) drain(*queue, queue->queued);
}

std::vector<NamedTouch> touches_beside() {
  const Stamp* running = Driver::instance().running();
  return running ? Driver::instance().traffic().beside(*running) : std::vector<NamedTouch>{};
}

}  // namespace qtrain::emulation

namespace qtrain::cuda {

using namespace emulation;

std::string problem() {
  return architecture_problem("native", settings().compute());
}
int device_count() {
  return 1;
}
DeviceInfo info(int index) {
  if (index != 0)
    fail(ErrorKind::usage, {.cause = "there is no CUDA device " + std::to_string(index), .remedy = "use device 0"});
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

void* allocate(int, std::size_t bytes) {
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

void* create_stream(int) {
  DeviceHeap::instance();  // the memory outlives the streams that work on it
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
  if (pageable(from)) {  // CUDA copies it away before it returns
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
    if (kStates) std::memset(state_of(to.data), static_cast<int>(State::initialised), to.bytes);
  };
  enqueue(stream, {.run = run,
                   .name = "fill",
                   .inputs = bytes_of(to.data, to.bytes, value),
                   .touches = {writes(to.data, to.bytes)}});
}

void* create_event(int) {
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
  const Point& point = Driver::instance().point(event);
  const auto& recording = Driver::instance().recording();
  if (point.mark.stream) {
    check(recording && recording->mine(), "a stream waits for an event of a graph, which is recorded");
    return recording->wait(stream, point.mark);
  }
  if (!point.queue) return;
  if (recording && recording->covers(stream)) recording->refuse("a stream waits for work of before");
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
  drain(*point.queue, point.ticket);  // whoever asks again and again gets there
  return false;
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

void begin_record(void* stream) {
  auto& recording = Driver::instance().recording();
  check(!recording, "two graphs are recorded at a time");
  recording = std::make_unique<Recording>(stream);
}
void* end_record(void* stream) {
  const std::unique_ptr<Recording> recording = std::move(Driver::instance().recording());
  return Driver::instance().keep(recording->end(stream));
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
  enqueue(stream, {.run = run, .name = "graph"});
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
    if constexpr (kAddressSanitizer) mark(part.data, part.bytes, State::initialised);
    return;
  }
  State* s = state_of(part.data);
  for (std::size_t i = 0; i < part.bytes; ++i)
    if (s[i] == State::fenced) s[i] = State::uninitialised;
}
void forget(void* stream, Span scratch) {
  enqueue(stream, {.run = [scratch] { mark(scratch.data, scratch.bytes, State::uninitialised); },
                   .name = "scratch",
                   .inputs = bytes_of(scratch.data, scratch.bytes)});
}

}  // namespace qtrain::cuda
