#include "emulator/ptx/trace.h"

#include <algorithm>
#include <limits>
#include <span>

namespace qtrain::emulation::ptx {
namespace {

constexpr std::uint32_t kAtEnd = std::numeric_limits<std::uint32_t>::max();

/// Where a lane is while its trace is read.
struct Cursor {
  const LaneTrace* lane = nullptr;
  std::size_t stretch = 0, access = 0;
  std::uint32_t at = kAtEnd;

  std::uint32_t end() const { return lane->stretches[stretch].end; }
  void move_to(std::uint32_t place) {
    at = place;
    if (at == end()) begin(stretch + 1);
  }
  void begin(std::size_t next) {
    stretch = next;
    at = stretch < lane->stretches.size() ? lane->stretches[stretch].begin : kAtEnd;
  }
};

/// Executes the traces of a warp in lock-step.
class LockStep {
 public:
  LockStep(std::span<const LaneTrace> lanes, const Function& function) : function_(function), count_(lanes.size()) {
    for (std::size_t n = 0; n < count_; ++n) {
      cursors_[n].lane = &lanes[n];
      cursors_[n].begin(0);
    }
  }

  void count(Counts& counts) {
    for (std::uint32_t at = first(); at != kAtEnd; at = first()) {
      const std::uint32_t end = end_from(at);
      for (std::uint32_t next = at; next < end; ++next) count(function_.code[next].traits, at, counts);
      for (Cursor& c : cursors())
        if (c.at == at) c.move_to(end);
    }
  }

 private:
  std::span<Cursor> cursors() { return std::span(cursors_).first(count_); }
  std::uint32_t first() {
    std::uint32_t at = kAtEnd;
    for (const Cursor& c : cursors()) at = std::min(at, c.at);
    return at;
  }
  /// How far the lanes at this place go together, until one jumps or others join them.
  std::uint32_t end_from(std::uint32_t at) {
    std::uint32_t end = kAtEnd;
    for (const Cursor& c : cursors()) end = std::min(end, c.at == at ? c.end() : c.at);
    return end;
  }
  /// One instruction of the lanes that are at `at`.
  void count(const Traits& traits, std::uint32_t at, Counts& counts) {
    ++counts.of(traits.kind);
    if (traits.memory == Memory::none) return;
    std::array<LaneAccess, kWarpSize> accesses{};
    for (std::size_t n = 0; n < count_; ++n)
      if (Cursor& c = cursors_[n]; c.at == at) accesses[n] = c.lane->accesses[c.access++];
    add_traffic(counts, accesses);
  }

  const Function& function_;
  std::array<Cursor, kWarpSize> cursors_;
  std::size_t count_;
};

void settle(std::span<LaneTrace> lanes, const Function& function, Counts& counts) {
  LockStep(lanes, function).count(counts);
  for (LaneTrace& lane : lanes) {
    lane.stretches.clear();
    lane.accesses.clear();
  }
}

}  // namespace

LaneTrace& LaunchTrace::begin(const Fiber& fiber) {
  auto& block = blocks_[static_cast<std::size_t>(fiber.block->host_thread())];
  if (!block || block->number != fiber.block->number()) {
    if (!block) block = std::make_unique<Block>();
    block->number = fiber.block->number();
    block->warps.clear();
    const Index3& threads = fiber.block->launch().extents.threads;
    const std::size_t count = std::size_t{threads.x} * threads.y * threads.z;
    for (std::size_t at = 0; at < count; at += kWarpSize)
      block->warps.emplace_back(std::min<std::size_t>(kWarpSize, count - at));
  }
  LaneTrace& lane = block->warps[fiber.warp][fiber.lane];
  lane.fiber = &fiber;
  return lane;
}

void LaunchTrace::meet(const Fiber& fiber, std::uint32_t at) {
  Block& block = block_of(fiber);
  Warp& warp = block.warps[fiber.warp];
  warp[fiber.lane].meeting = at;
  // If a lane has exited, its trace may go beyond this place; all of it is counted in the end.
  const auto is_here = [&](const LaneTrace& lane) {
    return lane.fiber == &fiber || lane.waits_at(at) || (lane.finished && lane.stretches.empty());
  };
  if (std::ranges::all_of(warp, is_here)) settle(warp, function_, block.counts);
}

void LaunchTrace::finish(const Fiber& fiber) {
  Block& block = block_of(fiber);
  Warp& warp = block.warps[fiber.warp];
  warp[fiber.lane].finished = true;
  if (std::ranges::all_of(warp, &LaneTrace::finished)) settle(warp, function_, block.counts);
}

Counts LaunchTrace::counts() const {
  Counts sum;
  for (const auto& block : blocks_)
    if (block) sum += block->counts;
  return sum;
}

}  // namespace qtrain::emulation::ptx
