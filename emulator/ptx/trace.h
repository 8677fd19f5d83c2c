#pragma once
#include <array>
#include <memory>
#include <vector>

#include "emulator/block.h"
#include "emulator/ptx/counts.h"
#include "emulator/ptx/program.h"

/// The lanes of a warp run one after another here, from one meeting to the next. Each records where it went, and when
/// all lanes have come to the same meeting (a barrier, shuffle or mma), the instructions since the last one are counted
/// as a warp executes them: next comes the place that is earliest in the program, for all lanes that are there.
namespace qtrain::emulation::ptx {

/// Instructions from `begin` to before `end`, without a jump.
struct Stretch {
  std::uint32_t begin, end;
};

/// What a lane executed since the last meeting.
struct LaneTrace {
  std::vector<Stretch> stretches;
  std::vector<LaneAccess> accesses;
  const Fiber* fiber = nullptr;  ///< null before the lane starts
  std::uint32_t meeting = 0;     ///< the place of the last meeting
  bool finished = false;

  /// The lane executes the instruction at this index, or skips it because of its guard.
  void step(std::uint32_t at) {
    if (stretches.empty() || stretches.back().end != at) stretches.push_back({at, at});
    ++stretches.back().end;
  }
  /// Whether it still waits there. The fiber's state shows a lane that was released but has not run since.
  bool waits_at(std::uint32_t place) const {
    return fiber && meeting == place &&
           (fiber->state == FiberState::in_exchange || fiber->state == FiberState::at_barrier);
  }
};

/// The traces of a launch; each host thread has those of the block that it runs.
class LaunchTrace {
 public:
  explicit LaunchTrace(const Function& function) : function_(function) {}

  /// The trace of a thread that starts.
  LaneTrace& begin(const Fiber& fiber);
  /// The thread is about to wait for others at this instruction, its last step.
  void meet(const Fiber& fiber, std::uint32_t at);
  void finish(const Fiber& fiber);
  Counts counts() const;

 private:
  using Warp = std::vector<LaneTrace>;
  struct Block {
    std::uint64_t number = 0;
    std::vector<Warp> warps;
    Counts counts;
  };
  Block& block_of(const Fiber& fiber) { return *blocks_[static_cast<std::size_t>(fiber.block->host_thread())]; }

  const Function& function_;
  std::array<std::unique_ptr<Block>, kMaxHostThreads> blocks_;
};

}  // namespace qtrain::emulation::ptx
