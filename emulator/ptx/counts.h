#pragma once
#include <array>
#include <string>
#include <vector>

#include "emulator/grid.h"
#include "emulator/ptx/kinds.h"

/// What kernels compiled by nvcc execute, counted as a GPU does: per warp, whose lanes execute an instruction together
/// where they are at the same place (docs/kernels.md).
namespace qtrain::emulation::ptx {

struct Counts {
  /// Instructions that warps executed, by kind.
  std::array<std::uint64_t, kKinds> instructions{};
  /// Global memory: bytes that lanes asked for; the sectors of 32 bytes that each instruction touched; and those beyond
  /// the least that could hold its distinct bytes.
  std::uint64_t global_bytes = 0, sectors = 0, excess_sectors = 0;
  /// Shared memory: passes over the 32 banks, and those beyond one for each group of lanes that can share a pass.
  std::uint64_t wavefronts = 0, conflicts = 0;

  std::uint64_t of(Kind kind) const { return instructions[static_cast<std::size_t>(kind)]; }
  std::uint64_t& of(Kind kind) { return instructions[static_cast<std::size_t>(kind)]; }
  std::uint64_t total() const;
  Counts& operator+=(const Counts& other);
  bool operator==(const Counts&) const = default;
};

struct CountedLaunch {
  std::string name;    ///< as passed to `launch`: "attention"
  std::string kernel;  ///< "attention_forward_mma<Bf16, 64>"
  Counts counts;
};

/// While it lives, launches of compiled kernels are counted when they run. Only one can exist at a time.
class Counting {
 public:
  Counting();
  ~Counting();
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

  /// The launches since the last call, in the order in which they ran.
  std::vector<CountedLaunch> take();
  void add(CountedLaunch launch);

  /// Null if nothing is counted.
  static Counting* current() { return place(); }

 private:
  static Counting*& place();

  std::vector<CountedLaunch> launches_;
};

/// A lane's part of an access to memory; without bytes, it does not take part.
struct LaneAccess {
  std::uint64_t global = 0;  ///< address
  std::uint32_t shared = 0;  ///< offset in the block's shared memory
  std::uint8_t global_bytes = 0, shared_bytes = 0;
  std::uint32_t box_read = 0, box_written = 0;  ///< bytes that a copy of a box moves
};
/// Adds the traffic of one instruction of a warp: all accesses are aligned to their size and have the same size.
void add_traffic(Counts& counts, const std::array<LaneAccess, 32>& lanes);

}  // namespace qtrain::emulation::ptx
