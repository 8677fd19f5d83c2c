#include <target/tensor_map.h>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/emulator/planted.h"

/// Mistakes with barriers in shared memory and copies of boxes.
namespace qtrain::testing {
namespace {

constexpr int kReaders = 256, kThreads = 384, kSize = 64, kTiles = 4,
              kRows = 224;  ///< half of the last tile is missing
constexpr unsigned kTileBytes = kSize * kSize * 2;

struct alignas(1024) FedTiles {
  Bf16 tiles[2][kSize][kSize];  // chunks of eight are swizzled
  ptx::Mbarrier full[2], empty[2];
};

enum class Flaw : std::uint8_t {
  none,
  not_initialized,
  initialized_twice,
  initialized_for_nobody,
  initialized_too_late,
  no_proxy_fence,
  overwritten_barrier,
  used_after_invalidation,
  no_wait,
  wrong_parity,
  no_expectation,
  expects_more,
  expects_less,
  arrives_twice,
  releases_early,
  releases_without_syncwarp,
  never_releases,
  does_not_wait_for_release,
  nobody_waits,
  fills_written_tile,
  misplaced_tile,
  not_a_map,
  lowers_by_raising,
  raises_too_far,
  warp_keeps_registers
};

template <Flaw F>
__device__ __forceinline__ void fill_tiles(FedTiles& s, const target::TensorMap& map) {
  for (int tile = 0; tile < kTiles; ++tile) {
    const int slot = tile % 2;
    if (F != Flaw::does_not_wait_for_release) ptx::wait(s.empty[slot], static_cast<unsigned>(tile / 2 + 1) % 2);
    constexpr unsigned kExpected = F == Flaw::expects_more   ? kTileBytes + 64
                                   : F == Flaw::expects_less ? kTileBytes - 64
                                                             : kTileBytes;
    if (F == Flaw::no_expectation)
      ptx::arrive(s.full[slot]);
    else
      ptx::arrive_and_expect(s.full[slot], kExpected);
    if (F == Flaw::arrives_twice) ptx::arrive(s.full[slot]);
    unsigned char* to = reinterpret_cast<unsigned char*>(s.tiles[slot]) + (F == Flaw::misplaced_tile ? 128 : 0);
    ptx::copy_box(to, map, {0, 0, tile * kSize}, s.full[slot]);
  }
  if (F == Flaw::nobody_waits) {
    for (auto& empty : s.empty) ptx::wait(empty, (kTiles / 2 + 1) % 2);
    ptx::arrive_and_expect(s.full[0], kTileBytes);
    ptx::copy_box(s.tiles[0], map, {0, 0, 0}, s.full[0]);
  }
}

template <Flaw F>
__device__ __forceinline__ void start_barriers(FedTiles& s) {
  for (int i = 0; i < 2; ++i) {
    ptx::init(s.full[i], F == Flaw::initialized_for_nobody ? 0 : 1);
    if (F == Flaw::initialized_twice) ptx::init(s.full[i], 1);
    ptx::init(s.empty[i], kReaders / kWarp);
  }
  if (F == Flaw::overwritten_barrier) s.full[1].bits = 0;
  if (F == Flaw::used_after_invalidation) ptx::invalidate(s.empty[1]);
  if (F != Flaw::no_proxy_fence) ptx::fence_proxy_async();
  if (F == Flaw::fills_written_tile) s.tiles[0][0][0] = from_float<Bf16>(1);
}

/// y = x, zero-filled, by way of two tiles that one thread fills and four warps read.
template <Flaw F>
__global__ void __launch_bounds__(kThreads, 1) pass_tiles(float* y, const __grid_constant__ target::TensorMap map) {
  FedTiles& s = shared_memory<FedTiles>();
  const int thread = static_cast<int>(threadIdx.x);
  if (F != Flaw::not_initialized && F != Flaw::initialized_too_late && thread == kReaders) start_barriers<F>(s);
  __syncthreads();
  if (F == Flaw::initialized_too_late && thread == kReaders) start_barriers<F>(s);
  if (thread >= kReaders) {
    if (F == Flaw::lowers_by_raising)
      ptx::raise_registers<24>();
    else if (F != Flaw::warp_keeps_registers || thread < kThreads - kWarp)
      ptx::lower_registers<24>();
    if (thread == kReaders) fill_tiles<F>(s, map);
    return;
  }
  ptx::raise_registers<F == Flaw::raises_too_far ? 256 : 240>();
  for (int tile = 0; tile < kTiles; ++tile) {
    const int slot = tile % 2;
    const unsigned parity = static_cast<unsigned>(tile / 2 + (F == Flaw::wrong_parity)) % 2;
    if (F != Flaw::no_wait) ptx::wait(s.full[slot], parity);
    if (F == Flaw::releases_early && thread % kWarp == 0) ptx::arrive(s.empty[slot]);
    for (int i = thread; i < kSize * kSize; i += kReaders) {
      const int row = i / kSize, column = i % kSize;
      y[tile * kSize * kSize + i] = to_float(s.tiles[slot][row][(column / 8 ^ row % 8) * 8 + column % 8]);
    }
    if (F != Flaw::releases_without_syncwarp) __syncwarp();
    if (F != Flaw::releases_early && F != Flaw::never_releases && thread % kWarp == 0) ptx::arrive(s.empty[slot]);
  }
}

float element(int row, int column) {
  return row < kRows ? static_cast<float>((row * 3 + column * 5) % 17 - 8) : 0;
}
std::vector<float> passed_tiles() {
  std::vector<float> y;
  for (int row = 0; row < kTiles * kSize; ++row)
    for (int column = 0; column < kSize; ++column) y.push_back(element(row, column));
  return y;
}

template <Flaw F>
std::vector<float> run_tiles(Ctx& ctx, Variant v) {
  std::vector<Bf16> elements;
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < kSize; ++column) elements.emplace_back(element(row, column));
  const OnGpu<Bf16> x(ctx, elements);
  Floats y(ctx, std::size_t{kTiles} * kSize * kSize);
  target::TensorMap map{};
  if (F != Flaw::not_a_map || v == Variant::right)
    map = target::tensor_map_of(
        {.data = x.data(), .extents = {kSize, 1, kRows}, .strides = {kSize * 2, kSize * 2}, .box = {kSize, 1, kSize}});
  launch(ctx, "tiles", v == Variant::right ? pass_tiles<Flaw::none> : pass_tiles<F>, {1, kThreads, sizeof(FedTiles)},
         y.data(), map);
  return y.values();
}

}  // namespace

std::vector<Planted> planted_in_mbarriers() {
  const std::vector<float> y = passed_tiles();
  return {
      {"mbarrier_not_initialized", run_tiles<Flaw::not_initialized>, y, "which has not been initialized"},
      {"mbarrier_initialized_twice", run_tiles<Flaw::initialized_twice>, y, "which is in use"},
      {"mbarrier_for_nobody", run_tiles<Flaw::initialized_for_nobody>, y, "initializes an mbarrier for 0 arrivals"},
      {"mbarrier_initialized_too_late", run_tiles<Flaw::initialized_too_late>, y,
       "which has not been initialized|race: updates shared memory"},
      {"mbarrier_without_proxy_fence", run_tiles<Flaw::no_proxy_fence>, y, "without a fence.proxy.async after it"},
      {"mbarrier_overwritten", run_tiles<Flaw::overwritten_barrier>, y, "which is part of an mbarrier"},
      {"mbarrier_used_after_invalidation", run_tiles<Flaw::used_after_invalidation>, y,
       "which has not been initialized"},
      {"tile_read_without_waiting", run_tiles<Flaw::no_wait>, y,
       "uninitialized: |too early: reads shared memory|race: reads shared memory"},
      {"tile_waited_for_with_other_parity", run_tiles<Flaw::wrong_parity>, y,
       "uninitialized: |too early: reads shared memory|race: reads shared memory"},
      {"bytes_not_expected", run_tiles<Flaw::no_expectation>, y,
       "which expected fewer bytes|too early: reads shared memory|bytes more than a phase"},
      {"more_bytes_expected_than_copied", run_tiles<Flaw::expects_more>, y, "lacks 0 arrivals and 64 bytes"},
      {"fewer_bytes_expected_than_copied", run_tiles<Flaw::expects_less>, y, "copies 64 bytes more than a phase"},
      {"arrives_too_often", run_tiles<Flaw::arrives_twice>, y, "more often than the 1 times of a phase"},
      {"tile_released_before_reading", run_tiles<Flaw::releases_early>, y,
       "race: writes shared memory|too early: reads shared memory|race: reads shared memory"},
      {"tile_released_by_one_lane", run_tiles<Flaw::releases_without_syncwarp>, y,
       "race: writes shared memory|too early: reads shared memory|race: reads shared memory"},
      {"tile_never_released", run_tiles<Flaw::never_releases>, y, "lacks 8 arrivals and 0 bytes"},
      {"tile_filled_before_its_release", run_tiles<Flaw::does_not_wait_for_release>, y,
       "race: writes shared memory|too early: writes shared memory|too early: reads shared memory|more often than"},
      {"copy_nobody_waits_for", run_tiles<Flaw::nobody_waits>, y, "copies of boxes that nobody waited for"},
      {"copy_over_a_written_tile", run_tiles<Flaw::fills_written_tile>, y, "without a fence.proxy.async after it"},
      {"copy_to_the_middle_of_an_atom", run_tiles<Flaw::misplaced_tile>, y, "not a multiple of 1024"},
      {"copy_without_a_map", run_tiles<Flaw::not_a_map>, y, "not a tensor map"},
      {"registers_lowered_by_raising", run_tiles<Flaw::lowers_by_raising>, y, "raises its 168 registers to 24"},
      {"registers_raised_too_far", run_tiles<Flaw::raises_too_far>, y, "ask for"},
      {"registers_of_one_warp", run_tiles<Flaw::warp_keeps_registers>, y, "changes registers in other ways"},
  };
}

}  // namespace qtrain::testing
