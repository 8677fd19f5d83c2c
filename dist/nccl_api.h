#pragma once
#include <climits>
#include <cstddef>

/// The part of NCCL's C interface that is used. It is declared here because the library is loaded at run time and need
/// not be installed at build time. Everything in it is stable from NCCL 2.14 on. Source: NCCL User Guide, "NCCL API".
/// tests/cuda/nccl_api_native_test.cpp compares it with an installed nccl.h.
namespace qtrain::nccl {

struct Comm;
/// A cudaStream_t.
using StreamHandle = void*;

struct UniqueId {
  char bytes[128];
};

enum Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

enum DataType : int { u8 = 1, i64 = 4, f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };
enum RedOp : int { sum = 0, max = 2 };

/// The number in ncclGetVersion: 22809 for 2.28.9.
constexpr int version_code(int major, int minor, int patch) {
  return 10000 * major + 100 * minor + patch;
}

/// ncclConfig_t as of 2.14. A newer library takes its own defaults for members that this version did not have.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = static_cast<unsigned>(version_code(2, 14, 0));
  int blocking = 0;
  int undefined = INT_MIN;  ///< the place of the next member, or padding
};

struct Functions {
  Result (*get_version)(int* code);
  Result (*get_unique_id)(UniqueId* id);
  Result (*comm_init_rank_config)(Comm** comm, int ranks, UniqueId id, int rank, Config* config);
  Result (*comm_get_async_error)(Comm* comm, Result* error);
  Result (*comm_finalize)(Comm* comm);
  Result (*comm_destroy)(Comm* comm);
  Result (*comm_abort)(Comm* comm);
  const char* (*get_error_string)(Result result);
  const char* (*get_last_error)(Comm* comm);
  Result (*all_reduce)(const void* from, void* to, std::size_t count, DataType, RedOp, Comm*, StreamHandle);
  Result (*reduce_scatter)(const void* from, void* to, std::size_t received, DataType, RedOp, Comm*, StreamHandle);
  Result (*broadcast)(const void* from, void* to, std::size_t count, DataType, int root, Comm*, StreamHandle);
  Result (*all_gather)(const void* from, void* to, std::size_t sent, DataType, Comm*, StreamHandle);
  Result (*send)(const void* from, std::size_t count, DataType, int peer, Comm*, StreamHandle);
  Result (*recv)(void* to, std::size_t count, DataType, int peer, Comm*, StreamHandle);
  Result (*group_start)();
  Result (*group_end)();
};

}  // namespace qtrain::nccl
