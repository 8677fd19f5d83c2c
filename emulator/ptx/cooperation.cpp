#include "emulator/ptx/executions.h"
#include "emulator/ptx/machine.h"

/// Instructions by which the threads of a warp or block cooperate.
namespace qtrain::emulation::ptx {
namespace {

enum class Way : std::uint8_t { up, down, butterfly, index };

/// The lane whose value lane `self` receives; `inside`: whether it is in the same segment. `bounds`: clamp in bits 0 to
/// 4, segment mask in bits 8 to 12 (PTX manual, "shfl.sync").
template <Way W>
unsigned source_lane(unsigned self, unsigned by, unsigned bounds, bool& inside) {
  const unsigned segment = bounds >> 8 & 31, clamp = bounds & 31;
  const unsigned last = (self & segment) | (clamp & ~segment), first = self & segment;
  by &= 31;
  unsigned lane = 0;
  if constexpr (W == Way::up) {
    inside = static_cast<int>(self) - static_cast<int>(by) >= static_cast<int>(last);
    lane = self - by;
  } else {
    lane = W == Way::down ? self + by : W == Way::butterfly ? self ^ by : first | (by & ~segment);
    inside = lane <= last;
  }
  return inside ? lane : self;
}
template <Way W>
void shuffle_lanes(Machine& m, const Instruction& i) {
  bool inside = false;
  const unsigned source = source_lane<W>(m.fiber().lane, m.operand<unsigned>(i, 1), m.operand<unsigned>(i, 2), inside);
  const auto in = m.operand<std::uint32_t>(i, 0);
  std::uint32_t out = 0;
  Shuffle s{.in = &in, .out = &out, .bytes = sizeof in, .source = source};
  shuffle(m.operand<std::uint32_t>(i, 3), s, i.place);
  m.set(i.results[0], out);
  if (i.result_count > 1) m.set(i.results[1], inside);
}

std::uint32_t vote(Machine& m, const Instruction& i) {
  return ballot(m.operand<std::uint32_t>(i, 1), m.operand<bool>(i, 0), i.place);
}
void vote_all(Machine& m, const Instruction& i) {
  const std::uint32_t mask = m.operand<std::uint32_t>(i, 1);
  m.set(i.results[0], (vote(m, i) & mask) == mask);
}

/// Faults unless the instruction names the barrier of all threads of the block.
void require_barrier_of_block(Machine& m, const Instruction& i, std::size_t operands) {
  if (i.operand_count != operands || m.operand<int>(i, 0) != 0)
    m.fault("waits at a barrier other than __syncthreads, which is not supported", i);
}
void meet(Machine& m, const Instruction& i) {
  require_barrier_of_block(m, i, 1);
  barrier(i.place);
}
/// Counts the threads whose predicate holds.
int count_at_barrier(Machine& m, const Instruction& i) {
  require_barrier_of_block(m, i, 2);
  return counting_barrier(m.operand<bool>(i, 1), i.place);
}
void any_at_barrier(Machine& m, const Instruction& i) {
  m.set(i.results[0], count_at_barrier(m, i) > 0);
}
void all_at_barrier(Machine& m, const Instruction& i) {
  const Index3& threads = m.fiber().block->launch().extents.threads;
  m.set(i.results[0], count_at_barrier(m, i) == static_cast<int>(threads.x * threads.y * threads.z));
}

template <bool Transposed>
void load_matrices(Machine& m, const Instruction& i) {
  std::uint32_t registers[4];
  LoadMatrix args{.registers = registers,
                  .count = i.result_count,
                  .transposed = Transposed,
                  .row = m.shared(m.operand<std::uint32_t>(i, 0) + static_cast<std::uint32_t>(i.offset))};
  load_matrix(args, i.place);
  for (std::size_t n = 0; n < i.result_count; ++n) m.set(i.results[n], registers[n]);
}

template <MmaKind K>
void multiply(Machine& m, const Instruction& i) {
  std::uint32_t a[4], b[2];
  float c[4], d[4];
  for (std::size_t n = 0; n < 4; ++n) a[n] = m.operand<std::uint32_t>(i, n), c[n] = m.operand<float>(i, 6 + n);
  for (std::size_t n = 0; n < 2; ++n) b[n] = m.operand<std::uint32_t>(i, 4 + n);
  Mma args{.kind = K, .d = d, .a = a, .b = b, .c = c};
  mma(args, i.place);
  for (std::size_t n = 0; n < 4; ++n) m.set(i.results[n], d[n]);
}

}  // namespace

const Executions& cooperation() {
  static const Executions all{
      {"shfl.sync.up.b32", shuffle_lanes<Way::up>},
      {"shfl.sync.down.b32", shuffle_lanes<Way::down>},
      {"shfl.sync.bfly.b32", shuffle_lanes<Way::butterfly>},
      {"shfl.sync.idx.b32", shuffle_lanes<Way::index>},
      {"vote.sync.ballot.b32", [](Machine& m, const Instruction& i) { m.set(i.results[0], vote(m, i)); }},
      {"vote.sync.any.pred", [](Machine& m, const Instruction& i) { m.set(i.results[0], vote(m, i) != 0); }},
      {"vote.sync.all.pred", vote_all},
      {"bar.sync", meet},
      {"bar.red.or.pred", any_at_barrier},
      {"bar.red.and.pred", all_at_barrier},
      {"bar.red.popc.u32", [](Machine& m, const Instruction& i) { m.set(i.results[0], count_at_barrier(m, i)); }},
      {"bar.warp.sync",
       [](Machine& m, const Instruction& i) { warp_barrier(m.operand<std::uint32_t>(i, 0), i.place); }},
      {"nanosleep.u32", [](Machine&, const Instruction&) { yield(); }},
      {"ldmatrix.sync.aligned.m8n8.x1.shared.b16", load_matrices<false>},
      {"ldmatrix.sync.aligned.m8n8.x2.shared.b16", load_matrices<false>},
      {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", load_matrices<false>},
      {"ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16", load_matrices<true>},
      {"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", load_matrices<true>},
      {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", load_matrices<true>},
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply<MmaKind::bf16_k16>},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply<MmaKind::f16_k16>},
  };
  return all;
}

}  // namespace qtrain::emulation::ptx
