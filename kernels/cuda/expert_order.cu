#include "kernels/expert_order.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rows.cuh"

/// The choices are divided into chunks. Each thread handles one expert of a chunk and scans it in order, so that the
/// result does not depend on timing; counts per chunk and expert determine where each part starts.
namespace qtrain::ops {
namespace {

constexpr int kOrderThreads = 128, kChoices = 1024, kScanThreads = 1024;

struct ChoiceChunk {
  std::int32_t experts[kChoices];
};
struct ExpertTotals {
  std::int32_t counts[kScanThreads];
};

struct OrderArgs {
  std::int32_t *offsets, *slots, *places;
  const std::int32_t* experts;
  std::int32_t* begins;  ///< [chunks, count]: first the number of choices, later the position of the first one
  int n, count, chunks;
};

/// Loads chunk blockIdx.x; returns its number of choices. Ends with a barrier.
__device__ __forceinline__ int load_chunk(ChoiceChunk& chunk, const OrderArgs& a) {
  const int first = static_cast<int>(blockIdx.x) * kChoices, size = min(kChoices, a.n - first);
  for (int i = static_cast<int>(threadIdx.x); i < size; i += kOrderThreads) chunk.experts[i] = a.experts[first + i];
  __syncthreads();
  return size;
}

__global__ void __launch_bounds__(kOrderThreads) count_choices(OrderArgs a) {
  auto& chunk = shared_memory<ChoiceChunk>();
  const int size = load_chunk(chunk, a);
  for (int e = static_cast<int>(threadIdx.x); e < a.count; e += kOrderThreads) {
    int count = 0;
    for (int i = 0; i < size; ++i) count += chunk.experts[i] == e;
    a.begins[static_cast<std::int64_t>(blockIdx.x) * a.count + e] = count;
  }
}

/// One block with a thread per expert: converts counts to positions.
__global__ void __launch_bounds__(kScanThreads) begin_experts(OrderArgs a) {
  auto& totals = shared_memory<ExpertTotals>();
  const int e = static_cast<int>(threadIdx.x);
  int total = 0;
  if (e < a.count)
    for (int c = 0; c < a.chunks; ++c) total += a.begins[static_cast<std::int64_t>(c) * a.count + e];
  totals.counts[e] = total;
  __syncthreads();
  if (e >= a.count) return;
  int begin = 0;
  for (int i = 0; i < e; ++i) begin += totals.counts[i];
  a.offsets[e] = begin;
  if (e == a.count - 1) a.offsets[a.count] = begin + total;
  for (int c = 0; c < a.chunks; ++c) {
    std::int32_t& here = a.begins[static_cast<std::int64_t>(c) * a.count + e];
    const int size = here;
    here = begin;
    begin += size;
  }
}

__global__ void __launch_bounds__(kOrderThreads) place_choices(OrderArgs a) {
  auto& chunk = shared_memory<ChoiceChunk>();
  const int size = load_chunk(chunk, a), first = static_cast<int>(blockIdx.x) * kChoices;
  for (int e = static_cast<int>(threadIdx.x); e < a.count; e += kOrderThreads) {
    int place = a.begins[static_cast<std::int64_t>(blockIdx.x) * a.count + e];
    for (int i = 0; i < size; ++i)
      if (chunk.experts[i] == e) {
        a.slots[place] = first + i;
        a.places[first + i] = place++;
      }
  }
}

}  // namespace

void run_cuda(Ctx& ctx, const ExpertOrder& a) {
  const std::int64_t n = a.experts.numel(), E = a.offsets.numel() - 1, chunks = ceil_div(n, std::int64_t{kChoices});
  check(E <= kScanThreads, "expert_order: at most 1024 experts");
  auto* begins = reinterpret_cast<std::int32_t*>(ctx.scratch(static_cast<std::size_t>(chunks * E) * 4));
  const OrderArgs args{.offsets = a.offsets.as<std::int32_t>(),
                       .slots = a.slots.as<std::int32_t>(),
                       .places = a.places.as<std::int32_t>(),
                       .experts = a.experts.as<std::int32_t>(),
                       .begins = begins,
                       .n = static_cast<int>(n),
                       .count = static_cast<int>(E),
                       .chunks = static_cast<int>(chunks)};
  const Grid grid{static_cast<unsigned>(chunks), kOrderThreads, sizeof(ChoiceChunk)};
  launch(ctx, "expert_order", count_choices, grid, args);
  launch(ctx, "expert_order", begin_experts, {1, kScanThreads, sizeof(ExpertTotals)}, args);
  launch(ctx, "expert_order", place_choices, grid, args);
}

}  // namespace qtrain::ops
