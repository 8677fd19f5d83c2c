#pragma once
#include <array>
#include <span>

#include "kernels/gemm.h"

namespace qtrain::ops {

/// What the adapters of layers with the same input get from the gradients of the layers' results, dy_i [T, N_i]. With
/// B_i [N_i, r_i] and u_i [T, r_i], which is s_i x A_i^T:
///   du_i [T, r_i] = s_i dy_i B_i,   dB_i [N_i, r_i] (+)= dy_i^T u_i.
/// u and du have the type of dy; sums are f32. A GPU reads dy once for both, if `reads_once` says so.
struct AdapterGrads {
  static constexpr std::size_t kMaxLayers = 4;
  static constexpr std::int64_t kMaxRank = 16;  ///< of an adapter, to read dy once
  struct Layer {
    ConstTensor dy = {};  ///< absent for all layers after the last
    ConstTensor b = {}, u = {};
    Tensor du = {};
    Sink db = discard();
    double scale = 1;
    Tensor copy = {};  ///< [T, N_i]: gets a copy of dy, if dy is read once
  };
  std::array<Layer, kMaxLayers> layers = {};
  /// Elements between rows, of all layers; 0: their own width.
  std::int64_t dy_stride = 0, u_stride = 0, du_stride = 0, copy_stride = 0;
  std::size_t memory = Ctx::kScratchBytes;  ///< for the sums of blocks; with less, a GPU takes fewer tokens at a time

  std::size_t count() const {
    std::size_t n = 0;
    while (n < kMaxLayers && layers[n].dy) ++n;
    return n;
  }
  std::int64_t tokens() const { return layers.front().dy.shape[0]; }
};

/// How a GPU divides that work among launches and their blocks, which put sums of du and dB into scratch memory. The
/// last launch may have fewer tokens than the others. All have the same blocks, so it never needs more memory.
struct AdapterGrid {
  static constexpr std::int64_t kTileRows = 64, kTileColumns = 128, kMaxBlockRows = 640;
  std::int64_t tokens = 0;             ///< of a launch; 0: not even the sums of one tile of rows fit into the memory
  std::int64_t rows = 0, columns = 0;  ///< of a block

  /// `outputs`: of each layer; `memory`: in bytes.
  static AdapterGrid of(std::int64_t tokens, std::span<const std::int64_t> outputs, std::size_t memory);

  std::int64_t launches(std::int64_t all) const { return tokens == 0 ? 0 : parts(all, tokens); }
  std::int64_t splits(std::int64_t of_launch) const { return parts(of_launch, rows); }
  std::int64_t strips(std::int64_t outputs) const { return parts(outputs, columns); }
  /// The f32 of a layer in a launch: the sums of du for each strip of columns, and those of dB for each split of rows.
  std::int64_t du_sums(std::int64_t of_launch, std::int64_t outputs) const {
    return strips(outputs) * of_launch * AdapterGrads::kMaxRank;
  }
  std::int64_t db_sums(std::int64_t of_launch, std::int64_t outputs) const {
    return splits(of_launch) * outputs * AdapterGrads::kMaxRank;
  }
  /// n / size, rounded up.
  static std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }
  std::size_t bytes(std::int64_t of_launch, std::span<const std::int64_t> outputs) const;
};
void run_cpu(Ctx&, const AdapterGrads&);
void run_cuda(Ctx&, const AdapterGrads&);
/// Two GEMMs per layer.
void apart(Ctx&, const AdapterGrads&);
/// Whether dy is read once: by a GPU with tensor cores, with 16-bit activations and ranks of 8 or 16, if all rows begin
/// at multiples of 16 bytes and sums fit into scratch memory.
bool reads_once(Ctx&, const AdapterGrads&);

inline void adapter_grads(Ctx& ctx, const AdapterGrads& a) {
  for (const AdapterGrads::Layer& l : std::span(a.layers).first(a.count())) {
    check(l.dy.shape[0] == a.tokens() && l.u.shape[0] == a.tokens() && l.du.shape == l.u.shape,
          "adapter_grads: another number of tokens");
    check(l.b.shape == Shape(l.dy.shape[1], l.u.shape[1]), "adapter_grads: B is [N, r]");
    check(!l.copy || (l.copy.shape == l.dy.shape && reads_once(ctx, a)), "adapter_grads: dy is not copied");
    check(!l.db.wanted() || l.db.t.shape == l.b.shape, "adapter_grads: the gradient of B has another shape");
  }
  if (ctx.device().kind == DeviceKind::cpu) return run_cpu(ctx, a);  // its GEMMs are launches of their own
  dispatch(ctx, a);
}

}  // namespace qtrain::ops
