#include <bit>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/embedding.h"

/// Sorts the tokens by id, stably, and then adds up the gradients of each row of the table in the order of the batch,
/// one warp per row. So the work grows linearly with the number of tokens, each row has one writer, and results do not
/// depend on timing.
namespace qtrain::ops {
namespace {

constexpr int kSorters = 1024, kSortWarps = kSorters / kWarp, kDigitBits = 6, kDigits = 1 << kDigitBits;
constexpr int kRowAdders = 128, kAddWarps = kRowAdders / kWarp;

/// The row of the table (`token`) and that of dy (`t`).
struct alignas(8) SortedToken {
  std::int32_t token, t;
};

/// For each warp and digit, the place of the warp's next token with this digit. Rows have an extra element, so that
/// lanes that read the same digit of all warps access different banks.
struct SortPlaces {
  std::uint32_t next[kSortWarps][kDigits + 1];
  std::uint32_t totals[kDigits];
};

struct SortArgs {
  const std::int32_t* tokens;
  SortedToken *sorted, *spare;
  int count, passes;
};

/// The adjacent tokens that a warp handles in one pass of the sort.
struct SortPart {
  const std::int32_t* tokens;
  const SortedToken* from;  ///< null in the first pass
  SortedToken* to;
  int begin, end, shift;

  __device__ SortedToken at(int i) const {
    if (i >= end) return {};
    return from ? from[i] : SortedToken{tokens[i], i};
  }
  __device__ std::uint32_t digit_of(const SortedToken& s) const {
    return static_cast<std::uint32_t>(s.token) >> shift & (kDigits - 1);
  }
};

__device__ SortPart part_of(const SortArgs& a, int warp, int pass) {
  const int share = ceil_div(a.count, kSorters) * kWarp, begin = min(warp * share, a.count);
  const bool into_sorted = (a.passes - pass) % 2 != 0;
  return {.tokens = a.tokens,
          .from = pass == 0     ? nullptr
                  : into_sorted ? a.spare
                                : a.sorted,
          .to = into_sorted ? a.sorted : a.spare,
          .begin = begin,
          .end = min(begin + share, a.count),
          .shift = pass * kDigitBits};
}

/// The sum over the lanes up to and including the calling one.
__device__ std::uint32_t sum_up_to(int lane, std::uint32_t v) {
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const std::uint32_t earlier = __shfl_up_sync(kAllLanes, v, static_cast<unsigned>(step));
    if (lane >= step) v += earlier;
  }
  return v;
}

/// The valid lanes that have the digit of the calling lane.
__device__ std::uint32_t lanes_with(std::uint32_t digit, bool valid) {
  std::uint32_t lanes = __ballot_sync(kAllLanes, valid);
#pragma unroll
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool set = digit >> bit & 1;
    const std::uint32_t others = __ballot_sync(kAllLanes, set);
    lanes &= set ? others : ~others;
  }
  return lanes;
}

/// Turns the counts of digits in `places` into places.
__device__ void add_counts(SortPlaces& places, int warp, int lane) {
  for (int d = warp; d < kDigits; d += kSortWarps) {
    const std::uint32_t count = places.next[lane][d], sum = sum_up_to(lane, count);
    places.next[lane][d] = sum - count;
    if (lane == kWarp - 1) places.totals[d] = sum;
  }
  __syncthreads();
  std::uint32_t before = 0;
  for (int d = lane; d < kDigits; d += kWarp) {
    const std::uint32_t total = places.totals[d], sum = sum_up_to(lane, total);
    places.next[warp][d] += before + sum - total;
    before += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
}

/// Moves the tokens of the warp to their places, in order.
__device__ void move_tokens(const SortPart& part, std::uint32_t* next, int lane) {
  SortedToken token = part.at(part.begin + lane);
  for (int i = part.begin + lane; i - lane < part.end; i += kWarp) {
    const SortedToken later = part.at(i + kWarp);
    const bool valid = i < part.end;
    const std::uint32_t digit = part.digit_of(token), equal = lanes_with(digit, valid);
    const std::uint32_t to = next[digit] + static_cast<std::uint32_t>(__popc(equal & ((1u << lane) - 1)));
    __syncwarp();
    if (valid) part.to[to] = token;
    if (equal >> lane == 1) next[digit] = to + 1;  // the last lane with this digit
    __syncwarp();
    token = later;
  }
}

/// A radix sort by one block, with one digit per pass: each warp counts how often each digit occurs; the counts are
/// added up; each warp moves its tokens.
__global__ void __launch_bounds__(kSorters) sort_tokens(SortArgs a) {
  SortPlaces& places = shared_memory<SortPlaces>();
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  std::uint32_t* next = places.next[warp];
  for (int pass = 0; pass < a.passes; ++pass) {
    const SortPart part = part_of(a, warp, pass);
    for (int d = lane; d < kDigits; d += kWarp) next[d] = 0;
    __syncwarp();
    for (int i = part.begin + lane; i < part.end; i += kWarp) atomicAdd(next + part.digit_of(part.at(i)), 1u);
    __syncthreads();
    add_counts(places, warp, lane);
    __syncwarp();
    move_tokens(part, next, lane);
    __syncthreads();
  }
}

struct GradRows {
  const SortedToken* sorted;
  int count, width;
  std::int64_t padding;
  float scale;
};

/// Adds rows `r` to `n - 1` of `at` to the sums, R at a time while that many are left; advances r.
template <int R, class T, int N>
__device__ __forceinline__ void add_rows(float (&sums)[N], const T* column, std::int32_t at, int width, int& r, int n) {
  for (; r + R <= n; r += R) {
    Pack<T, N> rows[R];
#pragma unroll
    for (int j = 0; j < R; ++j) {
      const std::int64_t row = __shfl_sync(kAllLanes, at, r + j);
      rows[j] = load_pack<N>(column + row * width);
    }
#pragma unroll
    for (int j = 0; j < R; ++j)
#pragma unroll
      for (int k = 0; k < N; ++k) sums[k] += to_float(rows[j].v[k]);
  }
}

/// One warp per sorted token and kWarp packs of columns. It sums the gradients of the token's row unless the previous
/// token is the same. The given blocks per multiprocessor make the compiler use enough registers to load 16 rows at
/// once: a frequent token has hundreds of rows, which a single warp loads.
template <class W, class T, int N>
__global__ void __launch_bounds__(kRowAdders, 4) embedding_rows_grad(Target<W> table, const T* dy, GradRows a) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(blockIdx.x) * kAddWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (first >= a.count) return;
  const std::int32_t token = a.sorted[first].token;
  if (token == a.padding || (first > 0 && a.sorted[first - 1].token == token)) return;
  const int c = (static_cast<int>(blockIdx.y) * kWarp + lane) * N;
  const T* column = dy + (c < a.width ? c : 0);  // lanes without columns load what lane 0 loads
  float sums[N] = {};
  for (int begin = first, n = kWarp; n == kWarp; begin += kWarp) {
    const bool inside = begin + lane < a.count;
    const SortedToken s = inside ? a.sorted[begin + lane] : SortedToken{};
    n = __popc(__ballot_sync(kAllLanes, inside && s.token == token));
    int r = 0;
    add_rows<16>(sums, column, s.t, a.width, r, n);
    add_rows<4>(sums, column, s.t, a.width, r, n);
    add_rows<1>(sums, column, s.t, a.width, r, n);
  }
#pragma unroll
  for (float& sum : sums) sum *= a.scale;
  if (c < a.width) table.template put_pack<N>(std::int64_t{token} * a.width + c, sums);
}

/// Returns the tokens sorted by id, in scratch memory.
const SortedToken* sorted_tokens(Ctx& ctx, const EmbeddingGrad& a) {
  const std::int64_t count = a.tokens.numel();
  auto* memory = reinterpret_cast<SortedToken*>(ctx.scratch(static_cast<std::size_t>(2 * count) * sizeof(SortedToken)));
  const auto bits = std::bit_width(static_cast<std::uint64_t>(a.dtable.t.shape.rows()));
  launch(ctx, "sort_tokens", sort_tokens, {1, kSorters, sizeof(SortPlaces)},
         SortArgs{.tokens = a.tokens.as<std::int32_t>(),
                  .sorted = memory,
                  .spare = memory + count,
                  .count = static_cast<int>(count),
                  .passes = ceil_div(static_cast<int>(bits), kDigitBits)});
  return memory;
}

}  // namespace

void run_cuda(Ctx& ctx, const EmbeddingGrad& a) {
  if (!a.dtable.adds()) ctx.stream().fill(a.dtable.t.data, 0, a.dtable.t.bytes());
  const std::int64_t count = a.tokens.numel(), width = a.dy.shape[-1];
  if (count == 0) return;
  const GradRows rows{.sorted = sorted_tokens(ctx, a),
                      .count = static_cast<int>(count),
                      .width = static_cast<int>(width),
                      .padding = a.padding,
                      .scale = static_cast<float>(a.scale)};
  dispatch_storage(a.dtable.t.dtype, [&]<class W>() {
    dispatch_storage(a.dy.dtype, [&]<class T>() {
      const Target<W> table = target_of<W>(a.dtable);
      const T* dy = a.dy.as<T>();
      dispatch_packs<T>(packable<T>(width, table.data, dy), [&]<int N>() {
        const Grid grid{{ceil_div(static_cast<unsigned>(count), unsigned{kAddWarps}),
                         static_cast<unsigned>(ceil_div(width, std::int64_t{kWarp} * N))},
                        kRowAdders};
        launch(ctx, "embedding_grad", embedding_rows_grad<W, T, N>, grid, table, dy, rows);
      });
    });
  });
}

}  // namespace qtrain::ops
