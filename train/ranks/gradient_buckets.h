#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "dist/collective.h"

namespace qtrain {

/// A gradient to be reduced over ranks, each of which sums one part of it.
struct GradientParts {
  Tensor gradient;                         ///< flat
  std::int64_t row;                        ///< elements of the longest part
  std::vector<ElementRange> of_rank = {};  ///< the part of each rank; some may be shorter or empty
  int unit = 0;                            ///< of the model

  /// Splits into parts of equal length, except for the last ones.
  static GradientParts even(Tensor gradient, int ranks);
  /// Whether all parts have the same length and are contiguous in rank order.
  bool are_rows() const;
};

/// Gradients that are reduced together. For each rank, its parts are concatenated into a row.
struct GradientBucket {
  std::vector<int> units = {};  ///< in order of completion
  std::vector<GradientParts> parts = {};
  std::vector<std::int64_t> begins{0};  ///< offset of each part in a row; the last entry is the row length
  Tensor totals = {};                   ///< this rank's sums of its parts, if it keeps them across micro-batches
  const ShardGroup* group = nullptr;    ///< if gradients are those of a sharded group

  std::int64_t row() const { return begins.back(); }
  bool holds(int unit) const;
  void add(GradientParts p);
};

/// Buckets of units in the order in which backward passes complete them: blocks from last to first, then the parameters
/// outside blocks. Units are merged until a bucket reaches `bytes` of gradients in the wire dtype.
std::vector<GradientBucket> make_buckets(std::span<Param* const> trained, int ranks, std::int64_t bytes,
                                         DType wire = DType::f32);

/// Elements [begin, begin + count) of the row for each rank.
struct BucketColumns {
  std::int64_t begin, count;
};
/// Packs gradients for sending as [ranks, count] in the dtype of `memory`, padding short parts with zeros. Returns
/// `memory`, or the gradients themselves if their layout already fits. Runs on the calling thread or the context's
/// stream.
Tensor pack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& memory);
/// Writes sums [ranks, count] back to the gradients. Runs like pack.
void unpack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& sums);

/// sum [count] = or += the first elements of each row of `received` [ranks, at least count], in row order. Runs like
/// pack.
void add_in_order(Ctx& ctx, const Tensor& sum, const Tensor& received, Sink::Mode mode);
/// copy_alone: to = from, converted to its dtype. clear_alone: t = 0. Both run like pack.
void copy_alone(Ctx& ctx, const Tensor& to, const Tensor& from);
void clear_alone(Ctx& ctx, const Tensor& t);

/// Buffers for one exchange, [ranks, row] each, of one dtype. One of them may be null: `sent` if gradients are sent in
/// place, `received` if sums overwrite what was sent.
struct Messages {
  Tensor sent, received;

  std::int64_t row() const { return sent.shape[1]; }
  /// Views for rows of `count` elements.
  Messages of(std::int64_t ranks, std::int64_t count) const;
};
/// How a rank reduces its parts of a bucket.
struct PartialSum {
  Tensor sum;  ///< flat, in the order of the bucket's parts
  Sink::Mode mode;
  Messages memory;
  bool scatters = false;  ///< use Collective::reduce_scatter, which adds in its own order
};
/// Sums the gradients of all ranks, each rank its own parts, in f32 and in rank order (unless `scatters`).
void reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const PartialSum& own);
/// Replaces gradients by their sums over several ranks, with identical bits on each. Gradients are converted to the
/// dtype of the messages; each element is summed by one rank in f32 in rank order, and the sum is rounded to that dtype
/// again.
void all_reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const Messages& memory);

/// Merges tensors of one dtype into as few contiguous views as possible, in address order. Alignment gaps that an arena
/// leaves between tensors become part of the views.
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
