#pragma once
#include <cstdint>

/// The ops as C functions, for benchmarks and checks in other languages (bench/peers/gpu_kernels.py).
extern "C" {

/// A contiguous tensor in the memory of the session's device. `dtype` as in a Hugging Face config.json, or "int32",
/// "int64", "float64". A tensor without `data` is omitted; with `adds` an op accumulates into it if it can.
struct QtrainTensor {
  void* data;
  const char* dtype;
  std::int64_t dims[4];
  std::int32_t rank;
  std::int32_t adds;
};

/// One call: the op's tensors and numbers in the order of its row in bench/cases/op_table.cpp.
struct QtrainCall {
  const char* op;
  const QtrainTensor* tensors;
  const double* numbers;
  std::int32_t tensor_count, number_count;
};

/// Opens a device ("cpu" or "cuda") and a stream on it; null on failure, with the reason in qtrain_error().
void* qtrain_open(const char* device);
void qtrain_close(void* session);
/// The stream that all calls of the session are queued on (cudaStream_t); null on the CPU.
void* qtrain_stream(void* session);
/// Returns 0, or 1 with the reason in qtrain_error().
int qtrain_call(void* session, const QtrainCall* call);
/// Why the last call of any session failed.
const char* qtrain_error();

}  // extern "C"
