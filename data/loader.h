#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace qtrain {

/// A micro-batch of one rank: its rows concatenated without padding. T = total tokens.
struct Batch {
  std::vector<std::int32_t> tokens;      ///< [T]
  std::vector<std::int32_t> targets;     ///< [T], token to predict after t; kNoTarget for none
  std::vector<std::int32_t> positions;   ///< [T], restarting at 0 in each document
  std::vector<std::int32_t> cu_seqlens;  ///< ascending from 0 to T: document borders, which attention does not cross
  std::vector<std::int64_t> row_sizes;   ///< tokens of each row
  std::int64_t target_count = 0;         ///< targets that are not kNoTarget
  std::int64_t rows = 0;                 ///< rows of the data set in this batch, empty ones included
  std::int64_t longest = 0;              ///< tokens of the longest document

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
};

struct LoaderOptions {
  std::int64_t batch_size = 8;  ///< rows of one micro-batch of one rank
  int rank = 0;
  int world = 1;
  bool drop_last = false;  ///< drop the last batch unless all ranks can fill it
  SamplerOptions sampler;
};

/// Batches of a data set. A batch is a pure function of (seed, epoch, index, rank, world), so the position in a run is
/// two numbers. Micro-batch `index` of all ranks together contains rows [index, index + 1) * batch_size * world in
/// epoch order, rank by rank; optimizer steps of equal size contain the same rows for any number of ranks.
class Loader {
 public:
  /// The data set must outlive the loader. Throws ErrorKind::usage for a batch size or world below 1.
  Loader(const Dataset& dataset, const LoaderOptions& options);

  /// ceil(N / (batch_size * world)), or floor with drop_last.
  std::int64_t batches_per_epoch() const;
  /// Thread-safe. In a short last batch a rank may have no rows; then T = 0.
  Batch batch(std::int64_t epoch, std::int64_t index) const;
  /// The rows of a batch, in order.
  std::vector<std::int64_t> rows_of(std::int64_t epoch, std::int64_t index) const;
  /// Targets of a batch over all ranks (the denominator of an optimizer step, without communication).
  std::int64_t global_targets(std::int64_t epoch, std::int64_t index) const;
  /// Tokens of a batch over all ranks; number of ranks whose micro-batch has rows.
  std::int64_t global_tokens(std::int64_t epoch, std::int64_t index) const;
  std::int64_t global_batches(std::int64_t index) const;
  /// The index of this rank's batch among those of all ranks.
  std::int64_t global_index(std::int64_t index) const { return index * options_.world + options_.rank; }
  /// The place of this rank's first row of a batch in the order of the epoch.
  std::int64_t first_row(std::int64_t index) const { return global_index(index) * options_.batch_size; }
  /// Upper bound for the tokens of a batch of one rank: the batch_size longest rows.
  std::int64_t max_batch_tokens() const;

 private:
  using Order = std::shared_ptr<const std::vector<std::int64_t>>;
  Order order(std::int64_t epoch) const;
  std::vector<std::int64_t> rows_between(std::int64_t epoch, std::int64_t begin, std::int64_t end) const;
  std::int64_t global_sum(std::int64_t epoch, std::int64_t index, const std::vector<std::int64_t>& per_row) const;

  const Dataset& dataset_;
  LoaderOptions options_;
  std::vector<std::int64_t> lengths_, target_counts_;
  struct KeptOrder {
    std::int64_t epoch = -1;
    Order order;
  };
  mutable std::mutex mutex_;
  mutable std::array<KeptOrder, 2> kept_;  // for an epoch and the next one, which is prefetched early
};

/// A batch of the given rows, in that order (for evaluation and tests).
Batch make_batch(const Dataset& dataset, const std::vector<std::int64_t>& rows);

}  // namespace qtrain
