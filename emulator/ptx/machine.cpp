#include "emulator/ptx/machine.h"

#include <algorithm>

namespace qtrain::emulation::ptx {
namespace {

std::uint64_t value_of(Special special, const Fiber& fiber) {
  const Index3 &block = fiber.block->index(), &threads = fiber.block->launch().extents.threads,
               &blocks = fiber.block->launch().extents.blocks;
  switch (special) {
    case Special::thread_x: return fiber.index.x;
    case Special::thread_y: return fiber.index.y;
    case Special::thread_z: return fiber.index.z;
    case Special::threads_x: return threads.x;
    case Special::threads_y: return threads.y;
    case Special::threads_z: return threads.z;
    case Special::block_x: return block.x;
    case Special::block_y: return block.y;
    case Special::block_z: return block.z;
    case Special::blocks_x: return blocks.x;
    case Special::blocks_y: return blocks.y;
    case Special::blocks_z: return blocks.z;
    case Special::lane: return fiber.lane;
  }
  return 0;
}

}  // namespace

Machine::Machine(Fiber& fiber, const Call& call) : fiber_(fiber), call_(call) {
  const Function& f = *call.function;
  fiber.registers.assign(f.registers.size(), 0);
  fiber.written.assign(f.registers.size(), 0);
  fiber.locals.assign(f.local_bytes, {});
  values_ = fiber.registers.data();
  written_ = fiber.written.data();
  for (const auto& [r, value] : f.constants) values_[r] = value, written_[r] = 1;
  for (const auto& [r, special] : f.specials) values_[r] = value_of(special, fiber), written_[r] = 1;
}

void Machine::run() {
  const std::vector<Instruction>& code = call_.function->code;
  while (next_ < code.size()) {
    const Instruction& i = code[next_++];
    if (i.guarded) {
      if (!written_[i.guard]) fault("branches on " + call_.function->registers[i.guard] + ", which has no value", i);
      if (get<bool>(i.guard) == i.unless) continue;
    }
    require_values(i);
    i.execute(*this, i);
  }
}

void Machine::require_values(const Instruction& i) {
  bool known = true;
  for (std::size_t n = 0; n < i.operand_count; ++n) {
    if (written_[i.operands[n]]) continue;
    if (i.strict)
      fault("uninitialized: uses register " + call_.function->registers[i.operands[n]] + ", which has no value", i);
    known = false;
  }
  for (std::size_t n = 0; n < i.result_count; ++n) written_[i.results[n]] = known;
}

void Machine::require_within(std::size_t size, std::uint64_t at, std::size_t bytes, const Instruction& i) const {
  if (at > size || size - at < bytes)
    fault("out of bounds: bytes from " + std::to_string(at) + " of " + std::to_string(size) +
              " of its local memory or parameters",
          i);
}
std::byte* Machine::local(std::uint64_t at, std::size_t bytes, const Instruction& i) const {
  require_within(fiber_.locals.size(), at, bytes, i);
  return fiber_.locals.data() + at;
}
std::byte* Machine::parameter(std::uint64_t at, std::size_t bytes, const Instruction& i) const {
  require_within(call_.parameters.size(), at, bytes, i);
  return const_cast<std::byte*>(call_.parameters.data()) + at;
}

}  // namespace qtrain::emulation::ptx
