#pragma once
#include <cstddef>
#include <cstdint>

/// The functions that a kernel on the CPU calls: its thread index, barriers, exchanges within a warp, shared memory and
/// asynchronous copies. Every CUDA thread is a fiber; a fault in one ends the launch with an Error.
namespace qtrain::emulation {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};
/// A source line of a kernel: where it called an intrinsic, or where a compiled instruction comes from.
struct Place {
  const char* file = "";
  unsigned line = 0;

  /// For default arguments: the line of the call.
  static constexpr Place current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

Index3 thread_index();
Index3 block_index();
Index3 block_extent();
Index3 grid_extent();
unsigned lane();

/// Ends the launch with an error about the calling thread.
[[noreturn]] void fault(const char* what, Place place = Place::current());

/// Faults if the device's compute capability is below `least` (80 for 8.0).
void require_capability(int least, const char* what, Place place);

/// The block's shared memory; faults unless the block was launched with at least `bytes`.
void* shared_memory(std::size_t bytes, Place place);

/// __syncthreads.
void barrier(Place place);
/// A barrier that also returns the number of threads with `predicate` != 0.
int counting_barrier(int predicate, Place place);
void warp_barrier(std::uint32_t mask, Place place);
/// Lets the other threads of the block run: for loops that wait for a value.
void yield();

/// Runs `act` once all lanes of `mask` have called, with the arguments of the lanes (null for the others).
using Exchange = void (*)(void* const* arguments, std::uint32_t mask);
struct ExchangeCall {
  const char* name;
  Exchange act;
  void* argument;
};
void exchange(std::uint32_t mask, const ExchangeCall& call, Place place);

struct Shuffle {
  const void* in;
  void* out;
  std::size_t bytes;
  unsigned source;
};
void shuffle(std::uint32_t mask, Shuffle& shuffle, Place place);
std::uint32_t ballot(std::uint32_t mask, bool predicate, Place place);

/// Faults unless `bytes` at `p` are in the block's shared memory and aligned to their size.
void check_shared(const void* p, std::size_t bytes, const char* what, Place place);
/// Checks an access by the calling thread like those of the kernel's own code.
enum class AccessKind : std::uint8_t { read, write, atomic };
void watch(const void* p, std::size_t bytes, AccessKind kind, Place place);

struct AsyncCopy {
  void* to;
  const void* from;
  unsigned bytes;  ///< 4, 8 or 16
  unsigned taken;  ///< bytes to read from `from`; the rest is zero-filled
};
void copy_async(const AsyncCopy& copy, Place place);
void commit_copies();
void wait_copies(int pending);

/// d = a b + c for one warp; fragments are laid out as in the PTX manual.
enum class MmaKind : std::uint8_t { bf16_k16, f16_k16 };
struct Mma {
  MmaKind kind;
  float* d;
  const std::uint32_t *a, *b;
  const float* c;
};
void mma(Mma& args, Place place);

struct LoadMatrix {
  std::uint32_t* registers;
  int count;  ///< number of matrices: 1, 2 or 4
  bool transposed;
  const void* row;
};
void load_matrix(LoadMatrix& args, Place place);

/// Four-byte registers of a thread that asynchronous products use: an array, or numbers of eight-byte cells.
struct AsyncRegisters {
  void* base = nullptr;
  const std::uint32_t* cells = nullptr;
};
/// d = a b (+ d) for a warpgroup, a [64, 16] and b [16, columns]. Descriptors and fragments are laid out as in the PTX
/// manual, "Asynchronous Warpgroup Level Matrix Instructions".
struct WarpgroupMma {
  MmaKind kind;
  int columns;
  bool adds;
  bool a_transposed, b_transposed;  ///< the rows of a, the columns of b are contiguous
  AsyncRegisters d;                 ///< columns / 2 accumulators
  AsyncRegisters a;                 ///< 4 words; without base, a is in shared memory
  std::uint64_t a_matrix, b_matrix;
};
void start_product(const WarpgroupMma& product, Place place);
void fence_warpgroup(Place place);
void commit_products(Place place);
void wait_products(int pending, Place place);
/// fence.proxy.async: asynchronous operations after a barrier see what the thread has written to shared memory.
void fence_async_proxy(Place place);
/// The offset of a pointer into the block's shared memory.
std::uint32_t shared_offset(const void* p);

/// old = *p; *p = op(old, value). T: int, unsigned, unsigned long long, float, double.
enum class AtomicOp : std::uint8_t { add, max, min, exchange, bit_or, bit_and };
template <class T>
T atomic(T* p, AtomicOp op, T value, Place place);
template <class T>
T compare_and_swap(T* p, T expected, T desired, Place place);
/// st.release and ld.acquire, with which blocks of a launch wait for each other.
void store_release(int* p, int value, Place place);
int load_acquire(const int* p, Place place);

}  // namespace qtrain::emulation
