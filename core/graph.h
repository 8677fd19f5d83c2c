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

/// Work of a CUDA stream that is recorded once and then queued again as a whole, without the cost of its single
/// launches (CUDA C++ Programming Guide, "CUDA Graphs").
class Graph {
 public:
  /// Records what `work` queues on `stream`, and on streams that it makes wait for `stream` and waits for again, and
  /// runs none of it. Such work allocates and frees nothing, waits for nothing, and copies to and from page-locked and
  /// device memory only; every address in it must stay valid for the life of the graph. `name` has static storage.
  Graph(Stream& stream, const char* name, const std::function<void()>& work);

  /// Queues the recorded work.
  void replay(Stream& stream) const;
  /// An internal error unless `again` records the same launches, copies and fills with the same arguments. Only the
  /// harness can tell.
  void require_same(const Graph& again) const;

 private:
  const char* name_;
  std::shared_ptr<void> handle_;
};

/// Work that comes again and again and queues the same whenever its key is the same: the first time it runs, the second
/// time it is recorded, from then on its record is replayed. Under the harness each replay is held against what the
/// work would queue.
class GraphCache {
 public:
  using Key = std::vector<std::int64_t>;
  /// Keeps the records of the `most` keys that were used last; with 0 all work just runs.
  explicit GraphCache(std::size_t max) : max_(max) {}

  void run(Stream& stream, const char* name, const Key& key, const std::function<void()>& work);
  /// Records that are kept, and how many times one of them was replayed.
  std::size_t size() const { return records_; }
  std::uint64_t replays() const { return replays_; }

 private:
  struct Entry {
    Key key;
    bool seen = false;                ///< it ran once
    std::optional<Graph> graph = {};  ///< from the second time on
  };
  Entry& entry(const Key& key);

  std::size_t max_, records_ = 0;
  std::uint64_t replays_ = 0;
  std::list<Entry> entries_;  ///< the one that was used last comes first
};

}  // namespace qtrain
