#include <bit>
#include <cstring>

#include "core/arena.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "tests/emulator/planted.h"

/// Mistakes of kernels, copies and streams in accessing memory.
namespace qtrain::testing {
namespace {

constexpr int kThreads = 64;

__global__ void add_one(float* y, const float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i] + 1;
}
__global__ void add_one_tail(float* y, const float* x, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i <= n) y[i] = x[i] + 1;
}

/// Moves packs of four, from a misaligned start in the wrong variant.
template <Variant V>
__global__ void copy_packs(float* y, const float* x) {
  const int i = 4 * static_cast<int>(threadIdx.x) + (V == Variant::right ? 0 : 1);
  store_pack<4>(y + 4 * threadIdx.x, load_pack<4>(x + i));
}

/// Every block adds to the same place.
template <Variant V>
__global__ void total(float* y, const float* x) {
  const float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  if (threadIdx.x != 0) return;
  if constexpr (V == Variant::right)
    y[blockIdx.x] = v;
  else
    y[0] = v;
}

struct Flags {
  std::uint8_t even[kThreads], odd[kThreads];
};
/// Each thread stores a byte. In the wrong variant, two threads of different warps store the same byte.
template <Variant V>
__global__ void store_bytes(float* y) {
  Flags& flags = shared_memory<Flags>();
  const unsigned i = threadIdx.x, at = V == Variant::right ? i : i % (kThreads / 2);
  flags.even[at] = 1;
  flags.odd[i] = 2;
  __syncthreads();
  y[i] = static_cast<float>(flags.even[V == Variant::right ? i : 0] + flags.odd[kThreads - 1 - i]);
}

/// The first warp stores all words but number 4, of which the last thread stores a byte. In the wrong variant, that
/// byte is in one of the other words.
template <Variant V>
__global__ void store_byte_beside_words(std::uint32_t* y) {
  if (threadIdx.x < 8)
    y[threadIdx.x < 4 ? threadIdx.x : threadIdx.x + 1] = 0;
  else if (threadIdx.x == kThreads - 1)
    reinterpret_cast<std::uint8_t*>(y + (V == Variant::right ? 4 : 5))[1] = 64;
}

/// Each block stores a value and reads one of the input or, in the wrong variant, that of the next block.
template <Variant V>
__global__ void read_next_block(float* y, float* sums, const float* x) {
  if (threadIdx.x != 0) return;
  const unsigned next = (blockIdx.x + 1) % gridDim.x;
  y[blockIdx.x] = x[blockIdx.x];
  sums[blockIdx.x] = x[blockIdx.x] + (V == Variant::right ? x : y)[next];
}

struct Args {
  float* y;
  const float* x;
};
__global__ void add_one_by_struct(Args a) {
  a.y[threadIdx.x] = a.x[threadIdx.x] + 1;
}

struct Pair {
  float first[8], second[8];
};
template <Variant V>
__global__ void index_array(float* y, const float* x) {
  Pair& pair = shared_memory<Pair>();
  const unsigned n = V == Variant::right ? 8 : 9;
  if (threadIdx.x < n) pair.first[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < 8) y[threadIdx.x] = pair.first[threadIdx.x];
}

std::vector<float> plus_one(std::size_t n) {
  std::vector<float> v = counting(n);
  for (float& x : v) x += 1;
  return v;
}

std::vector<float> tail(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(100)), y(ctx, 100);
  launch(ctx, "tail", v == Variant::right ? add_one : add_one_tail, {2, kThreads}, y.data(), x.data(), 100);
  return y.values();
}

/// Two tensors of one arena; the wrong variant writes past the end of the first.
std::vector<float> tail_in_arena(Ctx& ctx, Variant v) {
  Arena arena("tensors", ctx.device());
  arena.take(DType::f32, {64});
  arena.take(DType::f32, {64});
  arena.commit();
  const Tensor y = arena.take(DType::f32, {64}), other = arena.take(DType::f32, {64});
  Floats x(ctx, counting(65));
  ctx.stream().fill(other.data, 0, other.bytes());
  launch(ctx, "tail_in_arena", v == Variant::right ? add_one : add_one_tail, {2, kThreads}, y.as<float>(), x.data(),
         64);
  std::vector<float> result(64);
  ctx.stream().copy(result.data(), y.data, y.bytes());
  ctx.synchronize();
  return result;
}

std::vector<float> misaligned(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(41)), y(ctx, 40);
  launch(ctx, "misaligned", v == Variant::right ? copy_packs<Variant::right> : copy_packs<Variant::wrong>, {1, 10},
         y.data(), x.data());
  return y.values();
}

std::vector<float> blocks_race(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(4 * kThreads)), y(ctx, std::vector<float>(4));
  launch(ctx, "blocks_race", v == Variant::right ? total<Variant::right> : total<Variant::wrong>, {4, kThreads},
         y.data(), x.data());
  return y.values();
}

std::vector<float> bytes_race(Ctx& ctx, Variant v) {
  Floats y(ctx, kThreads);
  launch(ctx, "bytes_race", v == Variant::right ? store_bytes<Variant::right> : store_bytes<Variant::wrong>,
         {1, kThreads, sizeof(Flags)}, y.data());
  return y.values();
}

std::vector<float> byte_races_with_word(Ctx& ctx, Variant v) {
  Floats y(ctx, std::vector<float>(9));
  launch(ctx, "byte_races_with_word",
         v == Variant::right ? store_byte_beside_words<Variant::right> : store_byte_beside_words<Variant::wrong>,
         {1, kThreads}, reinterpret_cast<std::uint32_t*>(y.data()));
  std::vector<float> values = y.values();
  for (float& value : values) value = std::bit_cast<std::uint32_t>(value) == 64u << 8 ? 1.0f : value;
  return values;
}

std::vector<float> reads_of_another_block(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(4)), y(ctx, std::vector<float>(4)), sums(ctx, 4);
  launch(ctx, "reads_of_another_block",
         v == Variant::right ? read_next_block<Variant::right> : read_next_block<Variant::wrong>, {4, kThreads},
         y.data(), sums.data(), x.data());
  return sums.values();
}

std::vector<float> uninitialized(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(kThreads)), empty(ctx, kThreads), y(ctx, kThreads);
  launch(ctx, "uninitialized", add_one, {1, kThreads}, y.data(), v == Variant::right ? x.data() : empty.data(),
         kThreads);
  return y.values();
}

std::vector<float> host_argument(Ctx& ctx, Variant v) {
  const std::vector<float> host = counting(kThreads);
  Floats x(ctx, host), y(ctx, kThreads);
  launch(ctx, "host_argument", add_one, {1, kThreads}, y.data(), v == Variant::right ? x.data() : host.data(),
         kThreads);
  return y.values();
}

std::vector<float> host_in_struct(Ctx& ctx, Variant v) {
  const std::vector<float> host = counting(kThreads);
  Floats x(ctx, host), y(ctx, kThreads);
  launch(ctx, "host_in_struct", add_one_by_struct, {1, kThreads},
         Args{y.data(), v == Variant::right ? x.data() : host.data()});
  return y.values();
}

std::vector<float> null_in_struct(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(kThreads)), y(ctx, kThreads);
  launch(ctx, "null_in_struct", add_one_by_struct, {1, kThreads},
         Args{y.data(), v == Variant::right ? x.data() : nullptr});
  return y.values();
}

std::vector<float> freed(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(kThreads)), y(ctx, kThreads);
  const float* gone = Floats(ctx, counting(kThreads)).data();
  launch(ctx, "freed", add_one, {1, kThreads}, y.data(), v == Variant::right ? x.data() : gone, kThreads);
  return y.values();
}

std::vector<float> array_index(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(kThreads)), y(ctx, 8);
  launch(ctx, "array_index", v == Variant::right ? index_array<Variant::right> : index_array<Variant::wrong>,
         {1, kThreads, sizeof(Pair)}, y.data(), x.data());
  return y.values();
}

std::vector<float> shared_too_small(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(kThreads)), y(ctx, 8);
  launch(ctx, "shared_too_small", index_array<Variant::right>,
         {1, kThreads, v == Variant::right ? sizeof(Pair) : sizeof(Pair) / 2}, y.data(), x.data());
  return y.values();
}

/// The second stream doubles the result of the first one.
std::vector<float> stream_wait(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(kThreads)), y(ctx, std::vector<float>(kThreads)), z(ctx, kThreads);
  ctx.synchronize();
  Ctx second(ctx.device());
  Event computed(ctx.device());
  launch(ctx, "stream_wait", add_one, {1, kThreads}, y.data(), x.data(), kThreads);
  ctx.stream().record(computed);
  if (v == Variant::right) second.stream().wait(computed);
  launch(second, "stream_wait_next", add_one, {1, kThreads}, z.data(), y.data(), kThreads);
  second.synchronize();
  return z.values();
}

/// Page-locked memory is overwritten while a copy may still read it.
std::vector<float> pinned_source(Ctx& ctx, Variant v) {
  Floats y(ctx, kThreads);
  PinnedMemory pinned(ctx.device(), kThreads * sizeof(float));
  std::memcpy(pinned.data(), counting(kThreads).data(), pinned.bytes());
  ctx.stream().copy(y.data(), pinned.data(), pinned.bytes());
  if (v == Variant::right) ctx.synchronize();
  std::memset(pinned.data(), 0, pinned.bytes());
  return y.values();
}

/// The host reads a result before it is complete.
std::vector<float> early_result(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(kThreads)), y(ctx, kThreads);
  PinnedMemory pinned(ctx.device(), kThreads * sizeof(float));
  launch(ctx, "early_result", add_one, {1, kThreads}, y.data(), x.data(), kThreads);
  ctx.stream().copy(pinned.data(), y.data(), pinned.bytes());
  if (v == Variant::right) ctx.synchronize();
  std::vector<float> result(kThreads);
  std::memcpy(result.data(), pinned.data(), pinned.bytes());
  ctx.synchronize();
  return result;
}

/// An op reads the scratch memory of the previous op.
std::vector<float> stale_scratch(Ctx& ctx, Variant v) {
  Floats x(ctx, counting(kThreads)), y(ctx, kThreads);
  auto* scratch = reinterpret_cast<float*>(ctx.scratch(kThreads * sizeof(float)));
  launch(ctx, "fill_scratch", add_one, {1, kThreads}, scratch, x.data(), kThreads);
  if (v == Variant::wrong) scratch = reinterpret_cast<float*>(ctx.scratch(kThreads * sizeof(float)));
  launch(ctx, "stale_scratch", add_one, {1, kThreads}, y.data(), scratch, kThreads);
  return y.values();
}

/// Launch shapes that a GPU refuses.
template <class Wrong>
std::vector<float> shaped(Ctx& ctx, Variant v, const Wrong& wrong) {
  Floats x(ctx, counting(1)), y(ctx, std::vector<float>(1));
  Grid grid{1, kThreads};
  if (v == Variant::wrong) wrong(grid);
  launch(ctx, "shape", add_one, grid, y.data(), x.data(), 1);
  return y.values();
}

std::vector<float> plus(std::size_t n, float x) {
  std::vector<float> v = counting(n);
  for (float& value : v) value += x;
  return v;
}

}  // namespace

std::vector<Planted> planted_in_memory() {
  return {
      {"off_by_one_tail", tail, plus_one(100), "kernel tail: block (1, 0, 0) thread (36, 0, 0) out of bounds"},
      {"off_by_one_in_arena", tail_in_arena, plus_one(64), "out of bounds: writes device memory"},
      {"misaligned_packs", misaligned, counting(40), "misaligned"},
      {"race_of_blocks", blocks_race, {0, 64, 128, 192}, "race: writes device memory, which block"},
      {"race_of_bytes", bytes_race, std::vector<float>(kThreads, 3), "race: writes shared memory"},
      {"race_of_a_byte_and_a_word",
       byte_races_with_word,
       {0, 0, 0, 0, 1, 0, 0, 0, 0},
       "race: writes device memory, which thread"},
      {"value_of_another_block", reads_of_another_block, {1, 3, 5, 3}, "s device memory, which block"},
      {"uninitialized_input", uninitialized, plus_one(kThreads),
       "uninitialized: reads device memory|uninitialized: uses"},
      {"host_memory_as_argument", host_argument, plus_one(kThreads), "an argument points to memory of the host"},
      {"host_memory_in_a_struct", host_in_struct, plus_one(kThreads), "reads memory of the host"},
      {"null_in_a_struct", null_in_struct, plus_one(kThreads), "follows a null pointer"},
      {"freed_memory", freed, plus_one(kThreads), "out of bounds: reads device memory"},
      {"index_of_shared_array", array_index, counting(8), "out of bounds: index 8 of 'float [8]'", true},
      {"shared_memory_too_small", shared_too_small, counting(8), "uses 64 bytes of shared memory", true},
      {"missing_stream_wait", stream_wait, plus(kThreads, 2), ""},
      {"pinned_source_reused", pinned_source, counting(kThreads), ""},
      {"result_read_early", early_result, plus_one(kThreads), ""},
      {"scratch_of_another_op", stale_scratch, plus(kThreads, 2),
       "uninitialized: reads device memory|uninitialized: uses"},
      {"too_many_threads",
       [](Ctx& ctx, Variant v) { return shaped(ctx, v, [](Grid& g) { g.threads = 1056; }); },
       {1},
       "1056 threads; 1 to 1024"},
      {"grid_too_high",
       [](Ctx& ctx, Variant v) { return shaped(ctx, v, [](Grid& g) { g.blocks = dim3(1, 65536); }); },
       {1},
       "the y and z extents end at 65535"},
      {"too_much_shared_memory",
       [](Ctx& ctx, Variant v) { return shaped(ctx, v, [](Grid& g) { g.shared_bytes = 300000; }); },
       {1},
       "300000 bytes of shared memory"},
  };
}

}  // namespace qtrain::testing
