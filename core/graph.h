#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "core/device.h"

namespace qtrain {

/// Whether what this thread queues on the stream is recorded instead of run.
bool is_recorded(const Stream& stream);

/// Work of a CUDA stream that is recorded once and then queued again as a whole, without the cost of individual
/// launches (CUDA C++ Programming Guide, "CUDA Graphs").
class Graph {
 public:
  /// Records what `work` queues on `stream`, and on streams that it forks from `stream` and joins again, without
  /// running it. The work must not allocate, free or wait, and may copy only to and from page-locked and device memory;
  /// every address in it must stay valid for the life of the graph. `name` has static storage.
  Graph(Stream& stream, const char* name, const std::function<void()>& work);

  /// Called within the work of a Graph: returns what it has queued so far as a separate graph. That Graph records only
  /// what follows. Streams that were forked from `stream` must have been joined.
  static Graph cut(Stream& stream, const char* name);

  /// Queues the recorded work.
  void replay(Stream& stream) const;
  /// Throws an internal error unless `again` records the same launches, copies and fills with the same arguments. Only
  /// the harness can compare graphs.
  void require_same(const Graph& again) const;

 private:
  Graph(void* handle, const char* name);

  const char* name_;
  std::shared_ptr<void> handle_;  ///< null if nothing was recorded
};

/// Cache of CUDA graphs for recurring work that queues the same operations whenever its key is the same: the first time
/// it runs, the second time it is captured, and from then on it is replayed. The test harness compares each replay with
/// what the work would queue.
class GraphCache {
 public:
  using Key = std::vector<std::int64_t>;
  /// Keeps the graphs of the `max` most recently used keys. With 0, or on a stream that is observed, all work runs
  /// directly.
  explicit GraphCache(std::size_t max) : max_(max) {}

  void run(Stream& stream, const char* name, const Key& key, const std::function<void()>& work);
  /// Called within that work, for an action that cannot be recorded: calls `act`, now and at each replay, between the
  /// work queued before and after it. Everything that `act` refers to must outlive this cache.
  void between(const std::function<void()>& act);
  /// Number of recorded keys that are kept, and number of replays.
  std::size_t size() const { return records_; }
  std::uint64_t replays() const { return replays_; }

 private:
  /// Recorded work, and the action that follows it.
  struct Part {
    Graph graph;
    std::function<void()> act = {};
  };
  struct Entry {
    Key key;
    bool seen = false;             ///< it ran once
    std::vector<Part> parts = {};  ///< recorded at the second run
  };
  /// State of a recording in progress.
  struct Recording {
    Stream& stream;
    const char* name;
    std::vector<Part> parts = {};
  };
  Entry& entry(const Key& key);
  std::vector<Part> record(Stream& stream, const char* name, const std::function<void()>& work);
  static void require_same(const std::vector<Part>& parts, const std::vector<Part>& again);

  std::size_t max_, records_ = 0;
  std::uint64_t replays_ = 0;
  std::optional<Recording> recording_;
  std::list<Entry> entries_;  ///< most recently used first
};

}  // namespace qtrain
