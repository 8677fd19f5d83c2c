#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace qtrain {

/// A micro-batch of one rank: its rows concatenated, without padding. T = tokens of all rows.
struct Batch {
  std::vector<std::int32_t> tokens;      ///< [T]
  std::vector<std::int32_t> targets;     ///< [T], the token to predict at t, kNoTarget where there is none
  std::vector<std::int32_t> positions;   ///< [T], restarting at 0 with each document
  std::vector<std::int32_t> cu_seqlens;  ///< ascending from 0 to T: borders that attention does not cross
  std::int64_t target_count = 0;         ///< targets that are not kNoTarget
  std::int64_t rows = 0;                 ///< rows of the data set in this batch, empty ones included
  std::int64_t longest = 0;              ///< tokens of the longest document

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
};

struct LoaderOptions {
  std::int64_t batch_size = 8;  ///< rows of one micro-batch of one rank
  int rank = 0;
  int world = 1;
  bool drop_last = false;  ///< leave out a last batch that is not full over all ranks
  SamplerOptions sampler;
};

/// Batches of a data set; the next batch is a pure function of (seed, epoch, index, rank, world), so its place in a run
/// is two numbers. Micro-batch `index` of all ranks together holds the rows [index, index + 1) * batch_size * world of
/// the epoch's order, rank after rank; at another number of ranks an optimizer step of equal size holds the same rows.
class Loader {
 public:
  /// The data set must outlive the loader. A usage error for a batch size or world below 1.
  Loader(const Dataset& dataset, const LoaderOptions& options);

  /// ceil(N / (batch_size * world)), floor with drop_last.
  std::int64_t batches_per_epoch() const;
  /// Safe to call from several threads. In a short last batch a rank may have no rows: then T = 0.
  Batch batch(std::int64_t epoch, std::int64_t index) const;
  /// The data set rows of a batch, in order.
  std::vector<std::int64_t> rows_of(std::int64_t epoch, std::int64_t index) const;
  /// Targets of a batch over all ranks (for the denominator of an optimizer step without a reduction).
  std::int64_t global_targets(std::int64_t epoch, std::int64_t index) const;
  /// Tokens of a batch over all ranks, and micro-batches that have rows.
  std::int64_t global_tokens(std::int64_t epoch, std::int64_t index) const;
  std::int64_t global_batches(std::int64_t index) const;
  /// The number that a batch of this rank has among those of all ranks.
  std::int64_t global_index(std::int64_t index) const { return index * options_.world + options_.rank; }
  /// The largest number of tokens that any batch of one rank can have: the batch_size longest rows.
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
  mutable std::array<KeptOrder, 2> kept_;  // of an epoch and the next, which is prepared before the first has ended
};

/// One batch from explicitly chosen rows, in that order (evaluation, tests).
Batch make_batch(const Dataset& dataset, const std::vector<std::int64_t>& rows);

}  // namespace qtrain
