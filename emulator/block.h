#pragma once
#include <memory>
#include <string>
#include <vector>

#include "emulator/clocks.h"
#include "emulator/fiber.h"
#include "emulator/grid.h"
#include "emulator/mbarrier.h"
#include "emulator/releases.h"
#include "emulator/warpgroup.h"

namespace qtrain::emulation {

inline constexpr int kWarpSize = 32;

/// An unknown place.
inline Place no_place() {
  return {};
}

/// A kernel launch, as its blocks need it.
struct Launch {
  Kernel kernel;
  Extents extents;
  std::uint32_t serial;  ///< never 0
  std::vector<NamedTouch> beside = {};
  Releases* releases = nullptr;
};

/// An exchange in which all lanes of a warp must take part.
void whole_warp(const ExchangeCall& call, Place place);

/// Runs blocks one after another on one host thread. The settings decide which CUDA thread runs next; it runs until it
/// has to wait.
class Block {
 public:
  explicit Block(int host_thread);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// Runs one block; throws the first fault of a thread.
  void run(const Launch& launch, std::uint64_t number);

  const Launch& launch() const { return *launch_; }
  int host_thread() const { return host_thread_; }
  std::uint64_t number() const { return number_; }
  const Index3& index() const { return index_; }
  std::byte* shared() const { return shared_; }
  std::uint64_t random();

  void barrier(Fiber& self, Place place);
  int count(Fiber& self, int predicate, Place place);
  void exchange(Fiber& self, std::uint32_t mask, const ExchangeCall& call, Place place);
  void yield(Fiber& self);
  /// Whether other threads of the block are ready to run.
  bool others_ready(const Fiber& self) const;
  /// Suspends the calling thread until another resumes it; `what` is what it waits in.
  void pause(Fiber& self, const char* what, Place place);
  void resume(Fiber& fiber) { make_ready(fiber); }
  Warpgroups& warpgroups() { return warpgroups_; }
  Mbarriers& mbarriers() { return mbarriers_; }
  RegisterShares& registers() { return registers_; }
  /// Whether an asynchronous copy or product that starts now also completes now.
  bool copies_land_at_once();
  /// Records a write to shared memory by the thread.
  void note_write(const Fiber& self, std::uintptr_t address, std::size_t bytes);
  /// Records a write to shared memory by an asynchronous copy.
  void note_async_write(const void* p, std::size_t bytes);
  /// Faults if a thread that wrote these bytes of shared memory has not called fence.proxy.async since.
  void require_async_fence(Fiber& self, const void* p, std::size_t bytes, Place place);
  /// Starts a new epoch of the calling thread; returns the one that ends.
  std::uint16_t start_epoch(Fiber& self);
  /// Adds what the thread has done, or knows to have happened, to what waiting threads will know.
  void release_to(Fiber& self, Clocks::View& view);
  void acquire(const Fiber& self, const Clocks::View& view) { clocks_.acquire(self.warp, view); }
  /// Whether an access of a thread of the block in an epoch happened before what `self` does now.
  bool happened(const Fiber& self, unsigned thread, std::uint16_t epoch) const;
  /// Likewise for a thread of another block.
  bool happened_in(std::uint32_t block, const Fiber& self, unsigned thread, std::uint16_t epoch) const;
  Acquired& acquired() { return acquired_; }
  /// Counts how often the block has loaded a value in turn that does not change.
  unsigned count_wait(const int* p, int value);
  /// Called when all lanes of `mask` have met.
  void join_lanes(unsigned warp, std::uint32_t mask);
  [[noreturn]] void fault(Fiber& self, const std::string& what, Place place);

 private:
  struct Warp {
    std::uint32_t ready = 0, alive = 0, exchanging = 0, lanes = 0;
    const Fiber* first = nullptr;  ///< the first lane in an exchange
    bool alike = true;             ///< whether all of them made the same call as the first
  };
  struct Barrier {
    std::vector<Fiber*> waiting;
    Place place;
  };

  static void enter();
  void prepare(const Launch& launch, std::uint64_t number);
  void reset_shared();
  void schedule(Fiber& self);
  Fiber* next();
  Fiber* next_at_random();
  void make_ready(Fiber& fiber);
  void suspend(Fiber& fiber, FiberState state);
  void finish(Fiber& self);
  void release();
  void check_exchange(Fiber& self, std::uint32_t mask, const ExchangeCall& call);
  std::string states() const;

  int host_thread_;
  Context host_;
  std::byte* shared_;
  std::size_t open_shared_ = kSharedStretch;
  std::vector<Fiber*> fibers_;
  const Launch* launch_ = nullptr;
  std::uint64_t number_ = 0, random_ = 1;
  Index3 index_;
  int threads_ = 0, alive_ = 0;
  Order order_ = Order::forward;
  std::size_t warp_hint_ = 0;
  std::vector<Warp> warps_;
  Barrier barrier_;
  int count_ = 0, last_count_ = 0;
  Clocks clocks_;
  Acquired acquired_;
  struct {
    const int* value = nullptr;
    int last = 0;
    unsigned times = 0;
  } wait_;
  Warpgroups warpgroups_;
  Mbarriers mbarriers_;
  RegisterShares registers_;
  std::vector<std::uint32_t> writers_;  ///< per two bytes of shared memory: the last writer and its proxy_fences
  bool faulted_ = false;
  const void* fault_pc_ = nullptr;
  ErrorText error_;
};

}  // namespace qtrain::emulation
