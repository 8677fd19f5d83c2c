#pragma once
#include "kernels/cuda/norm_weight.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rows.cuh"

/// A group of lanes (a power of two) takes some heads of a token, one after another, so that it loads the token's
/// angles and the norm's weights only once; with a norm, the backward pass has no registers for them. Queries, keys and
/// values share a launch: the first blocks rotate the queries, and the last ones copy the values.
namespace qtrain::ops::rotary {

inline constexpr unsigned kThreads = 128;
inline constexpr int kPairs = 8;  ///< pairs of elements per lane: heads of up to 512 elements
inline constexpr int kHeads = 4;  ///< heads of a token that a group takes

/// Queries, keys and values.
inline constexpr int kParts = 3, kValues = 2;

/// The work on queries, keys or values. An item is up to kHeads heads of one token.
struct Division {
  std::int64_t items, step;   ///< step: distance between the tokens of x, in elements
  int chunks, heads, blocks;  ///< items and heads per token; blocks of the launch
};

struct Angles {
  const float *cos, *sin;
  const std::int32_t* positions;
  int half;       ///< pairs of a head
  int lane_bits;  ///< log2 of the lanes of a group
};

/// Whether the calling block works on queries (0), keys (1) or values (2), and its index among the blocks that do.
struct Part {
  int which, block;

  template <class Heads>
  __device__ __forceinline__ explicit Part(const Heads (&of)[kParts]) : which(0), block(static_cast<int>(blockIdx.x)) {
    for (; which < kValues && block >= of[which].division.blocks; ++which) block -= of[which].division.blocks;
  }
};

/// The heads that the calling lane's group takes, and the pairs of each that the lane holds: packs of N pairs. Without
/// packs, a group is a whole warp, so that the places of a lane's pairs differ by constants.
template <int N>
struct Share {
  static constexpr int kSlots = kPairs / N;
  using Floats = float[kSlots][N];

  std::int64_t token;
  int first, end;  ///< heads of the token; none for a group without an item
  int lane, lanes, half, heads;

  __device__ __forceinline__ Share(const Angles& angles, const Division& d, std::int64_t first_item)
      : lanes(N == 1 ? kWarp : 1 << angles.lane_bits), half(angles.half), heads(d.heads) {
    const std::int64_t item = first_item + (threadIdx.x >> angles.lane_bits);
    const bool exists = item < d.items;
    token = exists ? item / d.chunks : 0;
    first = exists ? static_cast<int>(item % d.chunks) * kHeads : 0;
    end = exists ? min(first + kHeads, d.heads) : 0;
    lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  }

  /// Calls f(slot, index of the pack's first pair) for the packs of the lane.
  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (int s = 0; s < kSlots; ++s)
      if (const int i = (lane + s * lanes) * N; i < half) f(s, i);
  }
  /// Likewise if the group has this head.
  template <class F>
  __device__ __forceinline__ void each_of(int head, const F& f) const {
    if (head < end) each(f);
  }
  /// Loads the packs of a row of pairs: first halves to u, second halves to v.
  template <class T>
  __device__ __forceinline__ void load(Floats& u, Floats& v, const T* x) const {
    each([&](int s, int i) {
      load_floats(u[s], x + i);
      load_floats(v[s], x + half + i);
    });
  }
  /// Index of the token's first angle in the tables.
  __device__ __forceinline__ std::int64_t angle(const Angles& a) const {
    return std::int64_t{a.positions[token]} * half;
  }
  __device__ __forceinline__ void load_angles(Floats& cos, Floats& sin, const Angles& a) const {
    const std::int64_t row = angle(a);
    each([&](int s, int i) {
      load_floats(cos[s], a.cos + row + i);
      load_floats(sin[s], a.sin + row + i);
    });
  }
  /// Index of a head of the token among all heads of all tokens.
  __device__ __forceinline__ std::int64_t row(int head) const {
    return token * heads + head;
  }
  /// Index of the head's first element in x.
  __device__ __forceinline__ std::int64_t in_x(int head, const Division& d) const {
    return token * d.step + head * 2 * half;
  }
  /// The sum over the lanes of the group. All lanes of the warp must call it.
  __device__ __forceinline__ float sum(float v) const {
    for (int bit = lanes / 2; bit > 0; bit /= 2) v += from_lane_across(v, bit);
    return v;
  }
};

/// The weights of a lane's pairs.
template <int N>
struct LaneWeights {
  typename Share<N>::Floats u = {}, v = {};

  __device__ __forceinline__ void load(const Share<N>& share, const float* weight, float offset) {
    share.each([&](int s, int i) {
      load_weights(u[s], weight + i, offset);
      load_weights(v[s], weight + share.half + i, offset);
    });
  }
};

}  // namespace qtrain::ops::rotary
