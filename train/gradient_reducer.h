#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "core/transfer.h"
#include "dist/collective.h"

namespace qtrain {

/// In which order gradients of the micro-batches of an optimizer step are added.
enum class ReductionOrder : std::uint8_t {
  ranks,          ///< each rank its own first, then those of the ranks: the last bits depend on the number of ranks
  micro_batches,  ///< one after the other: any number of ranks gives the same bits
};

/// Adds what the ranks have computed of an optimizer step. Micro-batch i of rank r is number i * ranks + r of the step;
/// with ReductionOrder::micro_batches each element of the gradient is added in f32 by one rank, in that order.
class GradientReducer {
 public:
  struct Options {
    ReductionOrder order = ReductionOrder::ranks;
  };
  /// How the elements of all gradients, one after the other, are divided where they are added in order: `chunks` times
  /// a row for each rank.
  struct Layout {
    std::int64_t row = 0, chunks = 0;
    Layout(int ranks, std::int64_t elements);
  };
  /// Of trained parameters that have their memory and are whole on every rank, and of sums (f64) that are added alike.
  GradientReducer(Collective& ranks, const Options& options, std::span<Param* const> trained, Tensor sums);
  /// Of the device, for so many elements.
  static std::size_t bytes(int ranks, const Options& options, std::int64_t elements);

  /// After a micro-batch of every rank, also of one without rows.
  void end_micro_batch(Ctx& ctx);
  /// Every rank has the sums over all ranks then.
  void finish(Ctx& ctx);

 private:
  bool is_ordered() const { return options_.order == ReductionOrder::micro_batches; }

  enum class Way : std::uint8_t { out, back };
  void copy_chunk(Ctx& ctx, std::int64_t chunk, Way way);
  void add_rows(Ctx& ctx, std::int64_t chunk);
  void add_sums(Ctx& ctx);

  Collective& ranks_;
  Options options_;
  std::vector<Tensor> gradients_;
  std::vector<std::int64_t> begins_;  ///< of each gradient among all elements, and their number
  Tensor sums_;
  HostCopy sums_of_rank_;
  Layout layout_;
  DeviceMemory memory_;
  Tensor sent_, received_;  ///< f32 [ranks, row]
  Tensor total_;            ///< f32 [chunks, row]: of the elements that this rank adds
  std::vector<double> total_sums_;
};

}  // namespace qtrain
