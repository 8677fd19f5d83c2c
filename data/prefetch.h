#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/loader.h"

namespace qtrain {

/// Identifies a batch of a run.
struct BatchPlace {
  std::int64_t epoch = 0, index = 0;
  friend bool operator==(const BatchPlace&, const BatchPlace&) = default;
};

/// Prefetches batches in the order of a run on background threads.
class Prefetcher {
 public:
  struct Options {
    int threads = 1;
    int ahead = 2;  ///< maximum number of batches waiting to be taken
  };
  /// Returns the next batch of the run; none at the end. Called under a lock.
  using Places = std::function<std::optional<BatchPlace>()>;

  /// The loader must outlive this object.
  Prefetcher(const Loader& loader, const Options& options, Places places);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// Returns the next batch, which must be the one at `place`. Rethrows errors of the thread that prepared it.
  Batch take(const BatchPlace& place);

 private:
  struct Slot {
    BatchPlace place;
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };
  void work();
  void prepare();
  void stop();

  const Loader& loader_;
  std::size_t ahead_;
  Places places_;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::deque<std::shared_ptr<Slot>> slots_;
  std::exception_ptr error_;  // of a thread rather than of a batch
  bool stopping_ = false, ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace qtrain
