#include "emulator/warpgroup.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "emulator/block.h"
#include "emulator/fragments.h"

namespace qtrain::emulation {
namespace {

constexpr unsigned kWarpsOfGroup = 4;
constexpr int kRows = 16, kDepth = 16, kMaxColumns = 256;
constexpr std::uint32_t kNoValue = 0xffffa51d;  ///< a NaN in accumulators that a product uses

/// A matrix in shared memory (PTX manual, "Matrix Descriptor Format"). `mn` is the index that is not summed over.
struct Matrix {
  std::uint32_t start, leading, stride;
  bool transposed;
  unsigned base, mode;

  Matrix(std::uint64_t bits, bool transposed_)
      : start(field(bits, 0)),
        leading(field(bits, 16)),
        stride(field(bits, 32)),
        transposed(transposed_),
        base(bits >> 49 & 7),
        mode(bits >> 62 & 3) {}

  /// The offset of the 16 bytes with elements (mn, k), (mn, k + 1), ..., or (mn, k), (mn + 1, k), ... if the matrix is
  /// transposed. See "Strides" and "Canonical Layouts"; 128-byte swizzling XORs bits 4 to 6 with the three above.
  std::uint32_t chunk(unsigned mn, unsigned k) const {
    const std::uint32_t plain = transposed ? start + mn / 64 * leading + mn % 64 * 2 + k / 8 * stride + k % 8 * 128
                                           : start + mn / 8 * stride + mn % 8 * 128 + k * 2;
    return plain ^ (plain >> 7 & 7) << 4;
  }

 private:
  static std::uint32_t field(std::uint64_t bits, int at) {
    return static_cast<std::uint32_t>(bits >> at & 0x3fff) << 4;
  }
};

std::byte* cell(const AsyncRegisters& r, std::size_t i) {
  auto* bytes = static_cast<std::byte*>(r.base);
  return r.cells ? bytes + 8 * std::size_t{r.cells[i]} : bytes + 4 * i;
}
std::uint32_t word_at(const AsyncRegisters& r, std::size_t i) {
  std::uint32_t word;
  std::memcpy(&word, cell(r, i), sizeof word);
  return word;
}
void set_word(const AsyncRegisters& r, std::size_t i, std::uint32_t word) {
  std::memcpy(cell(r, i), &word, sizeof word);
}
std::size_t accumulators(const WarpgroupMma& m) {
  return static_cast<std::size_t>(m.columns) / 2;
}
bool same_registers(const AsyncRegisters& a, const AsyncRegisters& b) {
  return a.base == b.base && a.cells == b.cells;
}

/// Operands as f32, [k][mn], and their product.
struct Factors {
  float a[kDepth][kRows], b[kDepth][kMaxColumns], sums[kRows][kMaxColumns];
};

void load(float* to, std::size_t stride, const Block& block, const Matrix& m, MmaKind kind, unsigned first,
          unsigned count) {
  for (unsigned mn = 0; mn < count; ++mn)
    for (unsigned k = 0; k < kDepth; ++k) {
      const std::uint32_t chunk = m.transposed ? m.chunk((first + mn) & ~7u, k) : m.chunk(first + mn, k & ~7u);
      std::uint16_t half;
      std::memcpy(&half, block.shared() + chunk + 2 * (m.transposed ? (first + mn) % 8 : k % 8), sizeof half);
      to[k * stride + mn] = low_half(kind, half);
    }
}
void load_fragments(Factors& f, const PendingProduct& p) {
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned i = 0; i < 8; ++i)
      f.a[l % 4 * 2 + i / 4 * 8 + i % 2][l / 4 + i / 2 % 2 * 8] =
          low_half(p.lanes[l].kind, word_at(p.lanes[l].a, i / 2) >> (i % 2 * 16));
}

void compute(const Block& block, unsigned warp, PendingProduct& p) {
  const WarpgroupMma& m = p.lanes[0];
  const auto columns = static_cast<unsigned>(m.columns);
  const auto memory = std::make_unique<Factors>();  // too large for the stack of a fiber
  Factors& f = *memory;
  load(&f.b[0][0], kMaxColumns, block, Matrix(m.b_matrix, m.b_transposed), m.kind, 0, columns);
  if (m.a.base)
    load_fragments(f, p);
  else
    load(&f.a[0][0], kRows, block, Matrix(m.a_matrix, m.a_transposed), m.kind, warp % kWarpsOfGroup * kRows, kRows);
  auto& sums = f.sums;
  for (unsigned row = 0; row < kRows; ++row)
    for (unsigned k = 0; k < kDepth; ++k)
      for (unsigned n = 0; n < columns; ++n) sums[row][n] += f.a[k][row] * f.b[k][n];
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned i = 0; i < columns / 2; ++i) {
      const float sum = sums[l / 4 + i / 2 % 2 * 8][i / 4 * 8 + l % 4 * 2 + i % 2];
      const float before = m.adds ? std::bit_cast<float>(word_at(p.lanes[l].d, i)) : 0.0f;
      set_word(p.lanes[l].d, i, std::bit_cast<std::uint32_t>(before + sum));
    }
  p.done = true;
}

/// Restores the values of the accumulators.
void release(Block& block, PendingProduct& p) {
  std::size_t at = 0;
  if (p.held.empty()) return;
  for (const WarpgroupMma& lane : p.lanes)
    for (std::size_t i = 0; i < accumulators(lane); ++i) {
      if (word_at(lane.d, i) != kNoValue && !lane.d.cells)
        block.fault(current(), "writes an accumulator of wgmma before waiting for the product", current().place);
      set_word(lane.d, i, p.held[at++]);
    }
  p.held.clear();
}

/// What a lane passes when its warp meets.
struct Visit {
  Fiber* fiber;
  const WarpgroupMma* product = nullptr;
  int pending = 0;
  Place place = {};
};

void act_start(void* const* arguments, std::uint32_t) {
  const auto& first = *static_cast<Visit*>(arguments[0]);
  PendingProduct p{};
  for (unsigned l = 0; l < kWarpSize; ++l) {
    p.lanes[l] = *static_cast<Visit*>(arguments[l])->product;
    if (p.lanes[l].a_matrix != p.lanes[0].a_matrix || p.lanes[l].b_matrix != p.lanes[0].b_matrix ||
        p.lanes[l].adds != p.lanes[0].adds)
      first.fiber->block->fault(current(), "calls wgmma with descriptors that differ from those of lane 0",
                                first.place);
  }
  first.fiber->block->warpgroups().start(*first.fiber->block, first.fiber->warp, std::move(p), first.place);
}
void act_fence(void* const* arguments, std::uint32_t) {
  const Fiber& f = *static_cast<Visit*>(arguments[0])->fiber;
  f.block->warpgroups().fence(f.warp);
}
void act_commit(void* const* arguments, std::uint32_t) {
  const Fiber& f = *static_cast<Visit*>(arguments[0])->fiber;
  f.block->warpgroups().commit(f.warp);
}
void act_wait(void* const* arguments, std::uint32_t) {
  const auto& first = *static_cast<Visit*>(arguments[0]);
  first.fiber->block->warpgroups().wait(*first.fiber->block, first.fiber->warp, first.pending);
}

void require_warpgroups(const char* what, Fiber& self, Place place) {
  const Index3& threads = self.block->launch().extents.threads;
  if (settings().capability != 90)
    self.block->fault(self, std::string(what) + " exists on GPUs of compute capability 9.0 only", place);
  if (threads.x * threads.y * threads.z < (self.warp / kWarpsOfGroup + 1) * kWarpsOfGroup * kWarpSize)
    self.block->fault(self, std::string(what) + " needs a warpgroup of 128 threads", place);
}
void visit(const char* name, Exchange act, Visit v) {
  require_warpgroups(name, *v.fiber, v.place);
  const Place place = v.place;
  whole_warp({.name = name, .act = act, .argument = &v}, place);
}

/// Checks a lane's share of the warp's reads: `count` rows or columns of a matrix from `first` on.
void watch_share(Fiber& self, const Matrix& m, unsigned first, unsigned count, Place place) {
  if (m.mode != 1 || m.base != 0)
    self.block->fault(self, "uses a matrix whose layout is not that of 128-byte swizzle without an offset", place);
  const unsigned chunks = 2 * count, across = count / 8;
  for (unsigned c = self.lane; c < chunks; c += kWarpSize) {
    const std::byte* p = self.block->shared() + (m.transposed ? m.chunk(first + c % across * 8, c / across)
                                                              : m.chunk(first + c / 2, c % 2 * 8));
    check_shared(p, 16, "wgmma", place);
    watch(p, 16, AccessKind::read, place);
    self.block->require_async_fence(self, p, 16, place);
  }
}
void watch_operands(Fiber& self, const WarpgroupMma& m, Place place) {
  if (!m.a.base) watch_share(self, Matrix(m.a_matrix, m.a_transposed), self.warp % kWarpsOfGroup * kRows, kRows, place);
  watch_share(self, Matrix(m.b_matrix, m.b_transposed), 0, static_cast<unsigned>(m.columns), place);
}

}  // namespace

void Warpgroups::reset(std::size_t warps) {
  warps_.assign(warps, {});
  starts_.assign((warps + kWarpsOfGroup - 1) / kWarpsOfGroup, {});
}

void Warpgroups::hold(PendingProduct& product) {
  for (const WarpgroupMma& lane : product.lanes)
    for (std::size_t i = 0; i < accumulators(lane); ++i) {
      product.held.push_back(word_at(lane.d, i));
      set_word(lane.d, i, kNoValue);
    }
}

void Warpgroups::start(Block& block, unsigned warp, PendingProduct product, Place place) {
  Warp& w = warps_[warp];
  const WarpgroupMma& m = product.lanes[0];
  std::vector<Start>& starts = starts_[warp / kWarpsOfGroup];
  if (w.started == starts.size()) starts.push_back({place, m.a_matrix, m.b_matrix});
  const Start& agreed = starts[w.started++];
  if (agreed.place.line != place.line || agreed.a_matrix != m.a_matrix || agreed.b_matrix != m.b_matrix)
    block.fault(current(), "starts another product than the other warps of its warpgroup", place);
  const bool continues = std::ranges::any_of(
      w.products, [&](const PendingProduct& p) { return !p.done && same_registers(p.lanes[0].d, m.d); });
  product.group = w.group;
  w.products.push_back(std::move(product));
  if (block.copies_land_at_once()) return compute_all(block, warp);
  if (!continues) hold(w.products.back());
}

void Warpgroups::compute_all(Block& block, unsigned warp) {
  for (PendingProduct& p : warps_[warp].products) {
    if (p.done) continue;
    release(block, p);
    compute(block, warp, p);
  }
}

std::vector<const PendingProduct*> Warpgroups::completed_by(unsigned warp, int pending) const {
  std::vector<const PendingProduct*> list;
  const Warp& w = warps_[warp];
  for (const PendingProduct& p : w.products)
    if (w.group - p.group > static_cast<unsigned>(pending)) list.push_back(&p);
  return list;
}

void Warpgroups::wait(Block& block, unsigned warp, int pending) {
  Warp& w = warps_[warp];
  std::vector<AsyncRegisters> written;
  while (!w.products.empty() && w.group - w.products.front().group > static_cast<unsigned>(pending)) {
    PendingProduct& p = w.products.front();
    if (!p.done) {
      release(block, p);
      compute(block, warp, p);
      written.push_back(p.lanes[0].d);
    }
    w.products.pop_front();
  }
  for (PendingProduct& p : w.products) {  // accumulators that a later product still uses
    const auto again = std::ranges::find_if(written, [&](const auto& d) { return same_registers(d, p.lanes[0].d); });
    if (p.done || again == written.end()) continue;
    hold(p);
    written.erase(again);
  }
}

int Warpgroups::straggler() const {
  for (std::size_t warp = 0; warp < warps_.size(); ++warp)
    if (warps_[warp].started < starts_[warp / kWarpsOfGroup].size()) return static_cast<int>(warp);
  return -1;
}

void start_product(const WarpgroupMma& product, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  require_warpgroups("wgmma.mma_async", self, place);
  if (!self.block->warpgroups().fenced(self.warp))
    self.block->fault(self, "calls wgmma.mma_async before any wgmma.fence", place);
  watch_operands(self, product, place);
  visit("wgmma.mma_async", act_start, {.fiber = &self, .product = &product, .place = place});
}
void fence_warpgroup(Place place) {
  const Stay stay;
  visit("wgmma.fence", act_fence, {.fiber = &stay.fiber(), .place = place});
}
void commit_products(Place place) {
  const Stay stay;
  visit("wgmma.commit_group", act_commit, {.fiber = &stay.fiber(), .place = place});
}
void wait_products(int pending, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  require_warpgroups("wgmma.wait_group", self, place);
  for (const PendingProduct* p : self.block->warpgroups().completed_by(self.warp, pending))
    watch_operands(self, p->lanes[self.lane], place);
  visit("wgmma.wait_group", act_wait, {.fiber = &self, .pending = pending, .place = place});
}

void fence_async_proxy(Place place) {
  require_capability(90, "fence.proxy.async", place);
  const Stay stay;
  ++stay.fiber().proxy_fences;
}

std::uint32_t shared_offset(const void* p) {
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(p) - current().block->shared());
}

}  // namespace qtrain::emulation
