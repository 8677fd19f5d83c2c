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

/// Whether what this thread queues on the stream is recorded and not run.
bool is_recorded(const Stream& stream);

/// Work of a CUDA stream that is recorded once and then queued again as a whole, without the cost of its single
/// launches (CUDA C++ Programming Guide, "CUDA Graphs").
class Graph {
 public:
  /// Records what `work` queues on `stream`, and on streams that it makes wait for `stream` and waits for again, and
  /// runs none of it. Such work allocates and frees nothing, waits for nothing, and copies to and from page-locked and
  /// device memory only; every address in it must stay valid for the life of the graph. `name` has static storage.
  Graph(Stream& stream, const char* name, const std::function<void()>& work);

  /// Within the work of a Graph: what it has queued so far as a graph of its own. What comes behind is recorded by that
  /// Graph. Streams that were made to wait for `stream` were waited for again.
  static Graph cut(Stream& stream, const char* name);

  /// Queues the recorded work.
  void replay(Stream& stream) const;
  /// An internal error unless `again` records the same launches, copies and fills with the same arguments. Only the
  /// harness can tell.
  void require_same(const Graph& again) const;

 private:
  Graph(void* handle, const char* name);

  const char* name_;
  std::shared_ptr<void> handle_;  ///< none: nothing was recorded
};

/// Cache of CUDA graphs for recurring work that queues the same operations whenever its key is the same: the first time
/// it runs, the second time it is captured, and from then on it is replayed. The test harness compares each replay with
/// what the work would queue.
class GraphCache {
 public:
  using Key = std::vector<std::int64_t>;
  /// Keeps the records of the `max` keys that were used last; with 0, and on a stream that is observed, all work just
  /// runs.
  explicit GraphCache(std::size_t max) : max_(max) {}

  void run(Stream& stream, const char* name, const Key& key, const std::function<void()>& work);
  /// Within that work, for what cannot be recorded: calls `act`, and at each replay again, between what was queued
  /// before and what comes behind it. Whatever it refers to has to last as long as this.
  void between(const std::function<void()>& act);
  /// Records that are kept, and how many times one of them was replayed.
  std::size_t size() const { return records_; }
  std::uint64_t replays() const { return replays_; }

 private:
  /// Recorded work, and what is done behind it.
  struct Part {
    Graph graph;
    std::function<void()> act = {};
  };
  struct Entry {
    Key key;
    bool seen = false;             ///< it ran once
    std::vector<Part> parts = {};  ///< from the second time on
  };
  /// While work is recorded.
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
  std::list<Entry> entries_;  ///< the one that was used last comes first
};

}  // namespace qtrain
