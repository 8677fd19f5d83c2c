#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "dist/collective.h"

namespace qtrain {

/// Gradients that are reduced together. Their elements are numbered consecutively, and each rank sums a range of them,
/// its row.
struct GradientBucket {
  struct Part {
    Tensor gradient;     ///< flat
    int unit;            ///< of the model
    std::int64_t begin;  ///< number of its first element
  };
  std::vector<Part> parts = {};            ///< in order of completion
  std::vector<ElementRange> of_rank = {};  ///< the row of each rank; some may be shorter or empty
  std::int64_t row = 0;                    ///< elements of the longest row
  Tensor totals = {};                      ///< this rank's sums of its row, if it keeps them across micro-batches
  const ShardGroup* group = nullptr;       ///< if gradients are those of a sharded group

  /// The gradients of a sharded group, whose rows are split evenly among `replicas`: rank j of replica k sums piece k
  /// of row j.
  static GradientBucket of(const ShardGroup& group, int replicas);
  /// One gradient, split into rows of `row` elements.
  static GradientBucket of(const Tensor& gradient, int ranks, std::int64_t row);

  std::int64_t elements() const { return parts.empty() ? 0 : parts.back().begin + parts.back().gradient.numel(); }
  int ranks() const { return static_cast<int>(of_rank.size()); }
  int last_unit() const { return parts.back().unit; }
  bool holds(int unit) const { return std::ranges::find(parts, unit, &Part::unit) != parts.end(); }
  void add(const Tensor& gradient, int unit);
  /// Splits all elements into rows of this length; the last ones may be shorter or empty.
  void split(int ranks, std::int64_t length);
  /// Whether all rows have the same length and follow one another in a single gradient.
  bool are_rows() const;
};

/// Buckets of units in the order in which backward passes complete them: blocks from last to first, then the parameters
/// outside blocks. Units are merged until a bucket reaches `bytes` of gradients in the wire dtype.
std::vector<GradientBucket> make_buckets(std::span<const Param* const> trained, int ranks, std::int64_t bytes,
                                         DType wire = DType::f32);

/// Elements [begin, begin + count) of the row for each rank.
struct BucketColumns {
  std::int64_t begin, count;
};
/// Packs gradients for sending as [ranks, count] in the dtype of `memory`, padding short rows with zeros. Returns
/// `memory`, or the gradients themselves if their layout already fits. Runs on the calling thread or the context's
/// stream.
Tensor pack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& memory);
/// Writes sums [ranks, count] back to the gradients. Runs like pack.
void unpack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& sums);

/// sum [count] = or += the first elements of each row of `received` [ranks, at least count], in row order. Runs like
/// pack.
void add_in_order(Ctx& ctx, const Tensor& sum, const Tensor& received, Sink::Mode mode);
/// copy_alone: to = from, converted to its dtype. clear_alone: t = 0. Both run like pack. Like add_in_order,
/// they ignore tensors without memory, which are only planned.
void copy_alone(Ctx& ctx, const Tensor& to, const Tensor& from);
void clear_alone(Ctx& ctx, const Tensor& t);

/// Merges tensors of one dtype into as few contiguous views as possible, in address order. Alignment gaps that an arena
/// leaves between tensors become part of the views. Tensors without memory count as contiguous.
std::vector<Tensor> slabs_of(std::vector<Tensor> tensors);

/// Time of exchanges of two sizes; bytes are totals over all ranks.
struct LinkTimes {
  double small_seconds = 0, large_seconds = 0;
  std::int64_t small_bytes = 0, large_bytes = 0;
};
/// Times a few exchanges of each size in host memory; every rank gets the same result.
LinkTimes time_link(Ctx& ctx, Collective& ranks);
/// The smallest size at which latency is at most a tenth of the time, within bounds.
std::int64_t bucket_bytes(const LinkTimes& times);

}  // namespace qtrain
