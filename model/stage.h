#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/context.h"
#include "model/projection.h"

namespace qtrain {

/// Every activation of a decoder block. Shapes for T tokens are in slot_shape (activations.cpp).
enum class Slot {
  x,
  norm1,
  rms1,
  q,
  k,
  v,
  q_rms,
  k_rms,
  q_rot,
  k_rot,
  att,
  lse,
  proj,
  mid,
  norm2,
  rms2,
  gate,
  up,
  act,
  down,
  out,
  lora_qkv,
  lora_o,
  lora_gate_up,
  lora_down,
  count
};
inline constexpr int kSlots = static_cast<int>(Slot::count);

class SlotSet {
 public:
  constexpr SlotSet() = default;
  constexpr SlotSet(std::initializer_list<Slot> slots) {
    for (const Slot s : slots) bits_ |= std::uint64_t{1} << static_cast<int>(s);
  }
  constexpr bool has(Slot s) const { return bits_ >> static_cast<int>(s) & 1; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr SlotSet operator|(SlotSet a, SlotSet b) { return SlotSet(a.bits_ | b.bits_); }
  friend constexpr SlotSet operator&(SlotSet a, SlotSet b) { return SlotSet(a.bits_ & b.bits_); }
  friend constexpr SlotSet operator-(SlotSet a, SlotSet b) { return SlotSet(a.bits_ & ~b.bits_); }
  friend constexpr bool operator==(SlotSet, SlotSet) = default;

 private:
  constexpr explicit SlotSet(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_ = 0;
};

inline constexpr SlotSet kAllSlots = [] {
  SlotSet all;
  for (int i = 0; i < kSlots; ++i) all = all | SlotSet{static_cast<Slot>(i)};
  return all;
}();

struct Slots : std::array<Tensor, kSlots> {
  Tensor& operator[](Slot s) { return at(static_cast<std::size_t>(s)); }
  const Tensor& operator[](Slot s) const { return at(static_cast<std::size_t>(s)); }
};

/// A norm weight [C] in f32 and where its gradient goes.
struct NormWeight {
  ConstTensor weight = {};
  Sink grad = discard();
};

/// The weights of one block while it is acquired; q_norm and k_norm only in families with head norms.
struct BlockWeights {
  NormWeight norm1, norm2, q_norm, k_norm;
  Projection q, k, v, o, gate, up, down;
};

/// What the tokens of a micro-batch bring: positions i32 [T], cu_seqlens i32 [n+1], rotary tables, and in generation
/// the key/value cache of the layer.
struct TokenContext {
  ConstTensor positions, cu_seqlens, cos, sin;
  ConstTensor cache_rows = {};
  Tensor key_cache = {}, value_cache = {};
  ConstTensor dropout_seed = {};  ///< i64 [1]; absent outside training
};

/// Everything a stage may touch: weights, activations `s`, their gradients `d`.
struct BlockRun {
  Ctx& ctx;
  const BlockWeights& w;
  const TokenContext& tokens;
  Slots& s;
  Slots& d;
  Tensor scratch;   ///< for projections: see projection_scratch
  Tensor dense;     ///< for a quantized weight while it is multiplied
  SlotSet touched;  ///< gradients that already hold a value
  double eps;
  std::int64_t window;

  /// The first contribution to a gradient overwrites, later ones add: fan-out needs no special case.
  Sink grad(Slot i) {
    const bool adds = touched.has(i);
    touched = touched | SlotSet{i};
    return adds ? accumulate(d[i]) : store(d[i]);
  }
};

/// One step of a block: its forward, its adjoint, and what each reads. A slot has exactly one writer.
/// `weight_reads` is read in the adjoint only for gradients of the stage's own weights, so frozen weights pin nothing.
struct Stage {
  std::string_view name;
  SlotSet reads, writes, adjoint_reads, weight_reads;
  bool (*trains)(const BlockWeights&);  ///< whether any weight of the stage wants a gradient
  void (*forward)(BlockRun&);
  void (*backward)(BlockRun&);
};

/// What a recompute policy means for a stage table.
struct RecomputePlan {
  SlotSet stash;           ///< slots with memory of their own in every layer
  std::vector<int> rerun;  ///< stages to repeat before the backward pass, in order
  std::int64_t group = 1;  ///< blocks that keep one input, of the first, and find the others from it
};

/// One reverse sweep derives what is kept and what reruns when the slots in `drop` are given up. Throws an internal
/// error when a slot has two writers or a stage reads what nobody wrote. `weights` says which stages train.
RecomputePlan plan_recompute(std::span<const Stage> stages, SlotSet drop, const BlockWeights& weights);

void run_forward(std::span<const Stage> stages, BlockRun& run);
void run_backward(std::span<const Stage> stages, const RecomputePlan& plan, BlockRun& run);

}  // namespace qtrain
