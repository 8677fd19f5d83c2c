#include <algorithm>

#include "emulator/ptx/executions.h"
#include "emulator/ptx/machine.h"

/// The asynchronous products of warpgroups. emulator/warpgroup.cpp computes them; this file tracks the registers that
/// they use.
namespace qtrain::emulation::ptx {
namespace {

bool has_rows_in_registers(const Instruction& i) {
  return i.operand_count == kOperandsOfRows;
}
const std::vector<Register>& accumulators_of(const Machine& m, const Instruction& i) {
  return m.function().lists[i.list - 1];
}

template <class F>
void for_registers(const Machine& m, const Instruction& i, const F& f) {
  for (const Register r : accumulators_of(m, i)) f(r);
  if (has_rows_in_registers(i)) std::for_each_n(i.operands.begin(), 4, f);
}

/// Marks the registers as in use. Faults if they were used since the last wgmma.fence, or overlap those of another
/// product but are not its accumulators.
void take_registers(Machine& m, const Instruction& i, bool adds) {
  const std::vector<Register>& accumulators = accumulators_of(m, i);
  const auto name = [&](Register r) { return "register " + m.function().registers[r]; };
  const bool continues =
      std::ranges::any_of(m.fiber().held, [&](const HeldRegisters& h) { return h.product->list == i.list; });
  for_registers(m, i, [&](Register r) {
    if (m.state(r) & Machine::kTouched) m.fault("multiplies with " + name(r) + ", used since the last wgmma.fence", i);
  });
  for (const Register r : accumulators) {
    if (m.state(r) & Machine::kInFlight && !continues)
      m.fault("too early: accumulates in " + name(r) + ", which another product of wgmma still uses", i);
    if (adds && m.state(r) == 0) m.fault("uninitialized: adds to " + name(r) + ", which has no value", i);
  }
  for_registers(m, i, [&](Register r) { m.state(r) = Machine::kInFlight; });
  m.fiber().held.push_back({&i, m.fiber().product_group});
}

template <MmaKind K, int Columns>
void multiply(Machine& m, const Instruction& i) {
  const bool registers = has_rows_in_registers(i);
  const std::size_t b = registers ? 4 : 1;
  if (static_cast<int>(accumulators_of(m, i).size()) != Columns / 2 || i.operand_count != (registers ? 9 : 7) ||
      m.operand<int>(i, b + 2) != 1 || m.operand<int>(i, b + 3) != 1)
    m.fault("has operands of wgmma that are not supported", i);
  const bool adds = m.operand<bool>(i, b + 1);
  take_registers(m, i, adds);
  start_product({.kind = K,
                 .columns = Columns,
                 .adds = adds,
                 .a_transposed = !registers && m.operand<int>(i, 5) != 0,
                 .b_transposed = m.operand<int>(i, registers ? 8 : 6) != 0,
                 .d = m.cells(accumulators_of(m, i).data()),
                 .a = registers ? m.cells(i.operands.data()) : AsyncRegisters{},
                 .a_matrix = registers ? 0 : m.operand<std::uint64_t>(i, 0),
                 .b_matrix = m.operand<std::uint64_t>(i, b)},
                i.place);
}

void fence(Machine& m, const Instruction& i) {
  const std::vector<std::uint8_t>& in_products = m.function().in_products;
  for (Register r = 0; r < in_products.size(); ++r)
    if (in_products[r]) m.state(r) &= static_cast<std::uint8_t>(~Machine::kTouched);
  fence_warpgroup(i.place);
}

void commit(Machine& m, const Instruction& i) {
  ++m.fiber().product_group;
  commit_products(i.place);
}

void wait(Machine& m, const Instruction& i) {
  const auto pending = m.operand<unsigned>(i, 0);
  Fiber& fiber = m.fiber();
  wait_products(static_cast<int>(pending), i.place);
  const auto left = std::ranges::find_if(
      fiber.held, [&](const HeldRegisters& h) { return fiber.product_group - h.group <= pending; });
  for (auto h = fiber.held.begin(); h != left; ++h)
    for_registers(m, *h->product, [&](Register r) { m.state(r) = Machine::kValue; });
  fiber.held.erase(fiber.held.begin(), left);
  for (const HeldRegisters& h : fiber.held)
    for_registers(m, *h.product, [&](Register r) { m.state(r) = Machine::kInFlight; });
}

}  // namespace

const Executions& products() {
  static const Executions all{
      {"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", multiply<MmaKind::bf16_k16, 64>},
      {"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", multiply<MmaKind::f16_k16, 64>},
      {"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", multiply<MmaKind::bf16_k16, 128>},
      {"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", multiply<MmaKind::f16_k16, 128>},
      {"wgmma.fence.sync.aligned", fence},
      {"wgmma.commit_group.sync.aligned", commit},
      {"wgmma.wait_group.sync.aligned", wait},
      {"fence.proxy.async", [](Machine&, const Instruction& i) { fence_async_proxy(i.place); }},
      {"fence.proxy.async.shared::cta", [](Machine&, const Instruction& i) { fence_async_proxy(i.place); }},
  };
  return all;
}

}  // namespace qtrain::emulation::ptx
