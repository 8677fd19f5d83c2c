#include "emulator/mbarrier.h"

#include "emulator/ptx/executions.h"
#include "emulator/ptx/machine.h"

/// Barriers in shared memory, copies of boxes of tensors, and the registers of warpgroups.
namespace qtrain::emulation::ptx {
namespace {

std::byte* barrier_at(Machine& m, const Instruction& i, std::size_t operand) {
  return m.shared(m.operand<std::uint32_t>(i, operand) + static_cast<std::uint32_t>(i.offset));
}
void start_mbarrier(Machine& m, const Instruction& i) {
  init_mbarrier(barrier_at(m, i, 0), m.operand<unsigned>(i, 1), i.place);
}
void arrive_at(Machine& m, const Instruction& i) {
  arrive_at_mbarrier(barrier_at(m, i, 0), i.operand_count > 1 ? m.operand<unsigned>(i, 1) : 0, i.place);
}
void wait_for_parity(Machine& m, const Instruction& i) {
  m.set(i.results[0], try_wait_mbarrier(barrier_at(m, i, 0), m.operand<unsigned>(i, 1), i.place));
}

void copy_boxes(Machine& m, const Instruction& i) {
  copy_box(box_of(m, i), barrier_at(m, i, 5), i.place);
}

template <bool Raises>
void change_count(Machine& m, const Instruction& i) {
  change_registers({.count = m.operand<int>(i, 0), .raises = Raises, .launched = m.function().thread_registers},
                   i.place);
}

}  // namespace

BoxCopy box_of(const Machine& m, const Instruction& i) {
  BoxCopy copy{.to = m.shared(m.operand<std::uint32_t>(i, 0)), .map = {}, .at = {}};
  std::memcpy(&copy.map, m.tensor_map(m.operand<std::uint64_t>(i, 1), i), sizeof copy.map);
  for (std::size_t n = 0; n < 3; ++n) copy.at[n] = m.operand<int>(i, n + 2);
  return copy;
}

const Executions& mbarriers() {
  static const Executions all{
      {"mbarrier.init.shared::cta.b64", start_mbarrier},
      {"mbarrier.inval.shared::cta.b64",
       [](Machine& m, const Instruction& i) { invalidate_mbarrier(barrier_at(m, i, 0), i.place); }},
      {"mbarrier.arrive.shared::cta.b64", arrive_at},
      {"mbarrier.arrive.expect_tx.shared::cta.b64", arrive_at},
      {"mbarrier.try_wait.parity.shared::cta.b64", wait_for_parity},
      {"cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", copy_boxes},
      {"setmaxnreg.inc.sync.aligned.u32", change_count<true>},
      {"setmaxnreg.dec.sync.aligned.u32", change_count<false>},
      // The generic address of a parameter is its host address.
      {"cvta.param.u64",
       [](Machine& m, const Instruction& i) {
         m.set(i.results[0], reinterpret_cast<std::uint64_t>(m.parameter(m.operand<std::uint64_t>(i, 0), 1, i)));
       }},
  };
  return all;
}

}  // namespace qtrain::emulation::ptx
