#include "emulator/ptx/machine.h"

#include <algorithm>

#include "emulator/ptx/executions.h"

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
  fiber.held.clear();
  fiber.product_group = 0;
  values_ = fiber.registers.data();
  written_ = fiber.written.data();
  for (const auto& [r, value] : f.constants) values_[r] = value, written_[r] = 1;
  for (const auto& [r, special] : f.specials) values_[r] = value_of(special, fiber), written_[r] = 1;
}

void Machine::fault_at_guard(const Instruction& i) const {
  fault("branches on " + call_.function->registers[i.guard] + ", which has no value", i);
}

void Machine::run() {
  if (call_.trace) return run_traced();
  const std::vector<Instruction>& code = call_.function->code;
  while (next_ < code.size()) {
    const Instruction& i = code[next_++];
    if (!passes_guard(i)) continue;
    require_values(i);
    i.execute(*this, i);
  }
}

void Machine::run_traced() {
  LaneTrace& lane = call_.trace->begin(fiber_);
  const std::vector<Instruction>& code = call_.function->code;
  while (next_ < code.size()) {
    const auto at = static_cast<std::uint32_t>(next_++);
    const Instruction& i = code[at];
    const bool passes = passes_guard(i);
    if (passes) require_values(i);
    lane.step(at);
    if (i.traits.memory != Memory::none) lane.accesses.push_back(passes ? access_of(i) : LaneAccess{});
    if (!passes) continue;
    if (may_wait(i.traits.kind)) call_.trace->meet(fiber_, at);
    i.execute(*this, i);
  }
  call_.trace->finish(fiber_);
}

// Addresses come first, that in shared memory before that in global memory.
LaneAccess Machine::access_of(const Instruction& i) const {
  const auto at = operand<std::uint64_t>(i, 0) + static_cast<std::uint64_t>(i.offset);
  const auto shared = static_cast<std::uint32_t>(at);
  switch (i.traits.memory) {
    case Memory::none: break;
    case Memory::global: return {.global = at, .global_bytes = i.traits.bytes};
    case Memory::shared:
      // The rows of matrices: the first lanes have their addresses, eight for each result.
      if (i.traits.kind == Kind::load_matrix && fiber_.lane >= 8u * i.result_count) break;
      return {.shared = shared, .shared_bytes = i.traits.bytes};
    case Memory::global_to_shared:
      return {.global = operand<std::uint64_t>(i, 1),
              .shared = shared,
              .global_bytes = operand<std::uint8_t>(i, i.operand_count - 1u),
              .shared_bytes = operand<std::uint8_t>(i, 2)};
    case Memory::box: {
      const BoxCopy copy = box_of(*this, i);
      return {.box_read = static_cast<std::uint32_t>(copy.bytes_read()),
              .box_written = static_cast<std::uint32_t>(copy.bytes())};
    }
  }
  return {};
}

void Machine::require_values(const Instruction& i) {
  if (!call_.function->lists.empty()) return require_values_beside_products(i);
  bool known = true;
  for (std::size_t n = 0; n < i.operand_count; ++n) {
    if (written_[i.operands[n]]) continue;
    if (i.strict)
      fault("uninitialized: uses register " + call_.function->registers[i.operands[n]] + ", which has no value", i);
    known = false;
  }
  for (std::size_t n = 0; n < i.result_count; ++n) written_[i.results[n]] = known;
}

// For functions with asynchronous products, which use their registers until a wait.
void Machine::require_values_beside_products(const Instruction& i) {
  const std::vector<std::uint8_t>& in_products = call_.function->in_products;
  const auto name = [&](Register r) { return "register " + call_.function->registers[r]; };
  const bool product = i.list > 0;
  bool known = true;
  for (std::size_t n = 0; n < i.operand_count; ++n) {
    const Register r = i.operands[n];
    if (written_[r] & kInFlight) {
      if (product) continue;
      fault("too early: uses " + name(r) + ", which a product of wgmma still uses", i);
    }
    if (!(written_[r] & kValue)) {
      if (i.strict) fault("uninitialized: uses " + name(r) + ", which has no value", i);
      known = false;
    }
    if (in_products[r] && !product) written_[r] |= kTouched;
  }
  for (std::size_t n = 0; n < i.result_count; ++n) {
    const Register r = i.results[n];
    if (written_[r] & kInFlight) fault("too early: changes " + name(r) + ", which a product of wgmma still uses", i);
    written_[r] = static_cast<std::uint8_t>((known ? kValue : 0) | (in_products[r] ? kTouched : 0));
  }
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

const std::byte* Machine::tensor_map(std::uint64_t address, const Instruction& i) const {
  return parameter(address - reinterpret_cast<std::uint64_t>(call_.parameters.data()), sizeof(TensorMap), i);
}

}  // namespace qtrain::emulation::ptx
