#include <bit>
#include <cstring>

#include "emulator/block.h"
#include "emulator/fragments.h"

/// Operations of the lanes of a warp. Fragments are laid out as in the PTX manual, "Matrix Fragments for mma", with
/// group = lane / 4 and pair = lane % 4.
namespace qtrain::emulation {
namespace {

bool has(std::uint32_t mask, unsigned lane) {
  return mask >> lane & 1;
}

void act_shuffle(void* const* arguments, std::uint32_t mask) {
  for (unsigned l = 0; l < kWarpSize; ++l) {
    if (!has(mask, l)) continue;
    const auto& s = *static_cast<Shuffle*>(arguments[l]);
    if (has(mask, s.source))
      std::memcpy(s.out, static_cast<Shuffle*>(arguments[s.source])->in, s.bytes);
    else
      std::memset(s.out, 0xff, s.bytes);  // values from non-participating lanes are undefined
  }
}

struct Vote {
  bool predicate;
  std::uint32_t ballot;
};
void act_vote(void* const* arguments, std::uint32_t mask) {
  std::uint32_t ballot = 0;
  for (unsigned l = 0; l < kWarpSize; ++l)
    if (has(mask, l) && static_cast<Vote*>(arguments[l])->predicate) ballot |= 1u << l;
  for (unsigned l = 0; l < kWarpSize; ++l)
    if (has(mask, l)) static_cast<Vote*>(arguments[l])->ballot = ballot;
}

struct Meeting {
  Block* block;
  unsigned warp;
};
void act_meet(void* const* arguments, std::uint32_t mask) {
  const auto& m = *static_cast<Meeting*>(arguments[std::countr_zero(mask)]);
  m.block->join_lanes(m.warp, mask);
}

/// A is 16 x 16, B is 16 x 8, both converted to f32.
struct Tiles {
  float a[16][16], b[16][8], c[16][8];
};

void unpack_halves(Tiles& t, unsigned lane, const Mma& m) {
  const unsigned group = lane / 4, pair = lane % 4 * 2;
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned h = 0; h < 2; ++h)
      t.a[group + (i & 1) * 8][pair + (i >> 1) * 8 + h] = low_half(m.kind, m.a[i] >> (16 * h));
  for (unsigned i = 0; i < 2; ++i)
    for (unsigned h = 0; h < 2; ++h) t.b[pair + i * 8 + h][group] = low_half(m.kind, m.b[i] >> (16 * h));
}
float& element_c(Tiles& t, unsigned lane, unsigned i) {
  return t.c[lane / 4 + (i >> 1) * 8][lane % 4 * 2 + (i & 1)];
}

void act_mma(void* const* arguments, std::uint32_t) {
  Tiles t{};
  for (unsigned l = 0; l < kWarpSize; ++l) {
    const auto& m = *static_cast<Mma*>(arguments[l]);
    unpack_halves(t, l, m);
    for (unsigned i = 0; i < 4; ++i) element_c(t, l, i) = m.c[i];
  }
  for (int i = 0; i < 16; ++i) {
    float sums[8] = {};
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j) sums[j] += t.a[i][k] * t.b[k][j];
    for (int j = 0; j < 8; ++j) t.c[i][j] += sums[j];
  }
  for (unsigned l = 0; l < kWarpSize; ++l)
    for (unsigned i = 0; i < 4; ++i) static_cast<Mma*>(arguments[l])->d[i] = element_c(t, l, i);
}

void act_load_matrix(void* const* arguments, std::uint32_t) {
  const auto& first = *static_cast<LoadMatrix*>(arguments[0]);
  std::uint16_t m[4][8][8];
  for (int r = 0; r < 8 * first.count; ++r)
    std::memcpy(m[r / 8][r % 8], static_cast<LoadMatrix*>(arguments[r])->row, 16);
  for (unsigned l = 0; l < kWarpSize; ++l) {
    const unsigned group = l / 4, pair = l % 4 * 2;
    for (int i = 0; i < first.count; ++i) {
      const std::uint32_t low = first.transposed ? m[i][pair][group] : m[i][group][pair];
      const std::uint32_t high = first.transposed ? m[i][pair + 1][group] : m[i][group][pair + 1];
      static_cast<LoadMatrix*>(arguments[l])->registers[i] = low | high << 16;
    }
  }
}

}  // namespace

void whole_warp(const ExchangeCall& call, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  const unsigned threads = self.block->launch().extents.threads.x * self.block->launch().extents.threads.y *
                           self.block->launch().extents.threads.z;
  if ((self.warp + 1) * kWarpSize > threads)
    self.block->fault(self, std::string("calls ") + call.name + " in a warp of fewer than 32 threads", place);
  self.block->exchange(self, ~0u, call, place);
}

void shuffle(std::uint32_t mask, Shuffle& shuffle, Place place) {
  exchange(mask, {.name = "a shuffle", .act = act_shuffle, .argument = &shuffle}, place);
}

std::uint32_t ballot(std::uint32_t mask, bool predicate, Place place) {
  Vote vote{.predicate = predicate, .ballot = 0};
  exchange(mask, {.name = "a vote", .act = act_vote, .argument = &vote}, place);
  return vote.ballot;
}

void warp_barrier(std::uint32_t mask, Place place) {
  const Stay stay;
  Fiber& self = stay.fiber();
  Meeting meeting{.block = self.block, .warp = self.warp};
  exchange(mask, {.name = "__syncwarp", .act = act_meet, .argument = &meeting}, place);
}

void mma(Mma& args, Place place) {
  require_capability(80, "this mma.sync", place);
  whole_warp({.name = "mma.sync", .act = act_mma, .argument = &args}, place);
}

void load_matrix(LoadMatrix& args, Place place) {
  if (static_cast<int>(lane()) < 8 * args.count) {
    check_shared(args.row, 16, "ldmatrix", place);
    watch(args.row, 16, AccessKind::read, place);
  }
  whole_warp({.name = "ldmatrix", .act = act_load_matrix, .argument = &args}, place);
}

}  // namespace qtrain::emulation
