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

/// Which batch of a run.
struct BatchPlace {
  std::int64_t epoch = 0, index = 0;
  friend bool operator==(const BatchPlace&, const BatchPlace&) = default;
};

/// Batches in the order of a run, prepared by threads before they are asked for.
class Prefetcher {
 public:
  struct Options {
    int threads = 1;
    int ahead = 2;  ///< batches that may wait to be taken
  };
  /// The places of the run, one after the other; none at its end. Called under a lock.
  using Places = std::function<std::optional<BatchPlace>()>;

  /// The loader must outlive it.
  Prefetcher(const Loader& loader, const Options& options, Places places);
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next batch, which has to be the one of `place`. An error of the thread that prepared it is thrown here.
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
  std::exception_ptr error_;  // of a thread, not of a batch
  bool stopping_ = false, ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace qtrain
