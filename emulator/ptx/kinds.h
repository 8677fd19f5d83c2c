#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qtrain::emulation::ptx {

/// What an instruction does, for counts.
enum class Kind : std::uint8_t {
  global_load,
  global_store,
  shared_load,
  shared_store,
  local,       ///< loads and stores of local memory: arrays that are not in registers
  atomic,      ///< in global or shared memory
  async_copy,  ///< cp.async, also of boxes, from global to shared memory
  load_matrix,
  mma,
  float_arithmetic,  ///< also comparisons, minimum and maximum
  special,           ///< exponentials, logarithms, roots, reciprocals, and division of floats
  integer,           ///< also logic, shifts, comparisons and selections
  conversion,
  move,     ///< between registers, and loads of parameters; the assembler removes most of them
  branch,   ///< also returns
  shuffle,  ///< shuffles and votes
  barrier   ///< barriers of a block or warp or in shared memory, and waits for asynchronous copies
};
inline constexpr std::size_t kKinds = 17;

/// The memory whose traffic is counted.
enum class Memory : std::uint8_t { none, global, shared, global_to_shared, box };

struct Traits {
  Kind kind;
  Memory memory = Memory::none;
  std::uint8_t bytes = 0;  ///< per lane; 0 for asynchronous copies, whose operands give the size
};

Traits traits_of(std::string_view mnemonic);

/// Whether a thread may wait for others in such an instruction.
constexpr bool may_wait(Kind kind) {
  return kind == Kind::shuffle || kind == Kind::barrier || kind == Kind::mma || kind == Kind::load_matrix;
}

/// The name in tables: "global loads".
std::string_view name_of(Kind kind);

}  // namespace qtrain::emulation::ptx
