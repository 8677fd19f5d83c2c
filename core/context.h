#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <typeindex>

#include "core/device.h"
#include "core/parallel.h"
#include "core/tensor.h"

namespace qtrain {

/// How GEMMs read their operands; sums are always kept in at least f32.
enum class MatmulPrecision : std::uint8_t {
  storage,  ///< as stored: f64 in f64, everything else in f32
  bf16,     ///< f32 operands are rounded to bfloat16 first (processors and GPUs with bf16 dot products)
  f16,      ///< f32 operands are rounded to float16 first (CUDA)
  tf32,     ///< GEMMs of f32 operands in TF32 (CUDA); like `storage` on the CPU
};

/// The first argument of every op: where to run and with what. Ops have no other state.
class Ctx {
 public:
  explicit Ctx(Device device = {}, MatmulPrecision matmul = MatmulPrecision::storage, int threads = 0);

  Device device() const { return device_; }
  MatmulPrecision matmul() const { return matmul_; }
  ThreadPool& pool() { return *pool_; }

  /// Scratch memory of one worker of the pool, kWorkspaceBytes long and 64-byte aligned; its contents last for one op.
  std::span<std::byte> workspace(int worker);

  static constexpr std::size_t kWorkspaceBytes = std::size_t{4} << 20;

  /// Where the ops of this context queue their work. On the CPU, everything runs immediately.
  Stream& stream() { return stream_; }
  /// Waits for all queued work and throws its errors.
  void synchronize() { stream_.synchronize(); }
  /// Memory of the device for one op: uninitialized, aligned to 256 bytes, at most kScratchBytes.
  std::byte* scratch(std::size_t bytes);

  static constexpr std::size_t kScratchBytes = std::size_t{16} << 20;

  /// State that a backend keeps between ops (library handles, chosen algorithms), created for the device on first use.
  template <class T>
  T& kept() {
    std::shared_ptr<void>& slot = kept_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_shared<T>(device_);
    return *static_cast<T*>(slot.get());
  }

 private:
  Device device_;
  MatmulPrecision matmul_;
  std::unique_ptr<ThreadPool> pool_;
  DeviceMemory workspace_;  ///< in CPU memory
  Stream stream_;
  DeviceMemory scratch_;
  std::map<std::type_index, std::shared_ptr<void>> kept_;
};

}  // namespace qtrain
