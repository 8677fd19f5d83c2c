#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/param_store.h"
#include "dist/collective.h"

namespace qtrain {

/// A gradient that is added over ranks, each of which adds a part of it.
struct GradientParts {
  Tensor gradient;                         ///< flat
  std::int64_t row;                        ///< elements of the longest part
  std::vector<ElementRange> of_rank = {};  ///< the part of each rank; some may be shorter or empty

  /// Parts of one length, except the last ones.
  static GradientParts even(Tensor gradient, int ranks);
  /// Whether all have one length and lie one behind the other in the order of the ranks.
  bool are_rows() const;
};

/// Gradients that are added over ranks at once, with the parts for each rank one behind the other.
struct GradientBucket {
  std::vector<int> units = {};  ///< in the order in which they are complete
  std::vector<GradientParts> parts = {};
  std::vector<std::int64_t> begins{0};  ///< of each among the elements for a rank, and their number
  Tensor totals = {};                   ///< f32 of this rank's parts, where sums are kept over micro-batches
  Pending done = {};                    ///< the exchange that was begun last

  std::int64_t row() const { return begins.back(); }
  bool holds(int unit) const;
  void add(GradientParts p);
};

/// The units in the order in which backward passes complete them: the blocks from the last on, then what is in none.
/// Joined until a bucket has so many bytes of gradients, as they are sent.
std::vector<GradientBucket> make_buckets(std::span<Param* const> trained, int ranks, std::int64_t bytes,
                                         DType wire = DType::f32);

/// Elements [begin, begin + count) of those for each rank.
struct BucketColumns {
  std::int64_t begin, count;
};
/// Gradients as they are sent, [ranks, count] of the type of `memory`, with zeros where parts are short: copied there,
/// or the gradients themselves where those look alike. On the calling thread, or the stream of the context.
Tensor pack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& memory);
/// Sums [ranks, count] back to the gradients. Likewise.
void unpack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& sums);

/// sum [count] = or += the beginnings of the rows of `received` [ranks, at least count], in their order. Likewise.
void add_in_order(Ctx& ctx, const Tensor& sum, const Tensor& received, Sink::Mode mode);
/// to = from, rounded to its type; makes it 0. Likewise.
void copy_alone(Ctx& ctx, const Tensor& to, const Tensor& from);
void clear_alone(Ctx& ctx, const Tensor& t);

/// Memory for what ranks send each other at once and what comes back, [ranks, row] of one type each. One of them may
/// have no memory: `sent` where gradients are sent from where they are, `received` where sums come back to what was
/// sent.
struct Messages {
  Tensor sent, received;

  std::int64_t row() const { return sent.shape[1]; }
  /// For rows of so many elements.
  Messages of(std::int64_t ranks, std::int64_t count) const;
};
/// How a rank adds its parts of a bucket.
struct PartialSum {
  Tensor sum;  ///< flat: its elements in the order of the bucket's parts
  Sink::Mode mode;
  Messages memory;
  bool scatters = false;  ///< by Collective::reduce_scatter, which adds in an order of its own
};
/// Adds the gradients of all ranks, each rank its own parts, in f32 and in the order of the ranks unless they are
/// scattered.
void reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const PartialSum& own);
/// Gradients become their sums over several ranks, the same bits on each. They are rounded to the type of the messages,
/// each element is added by one rank in the order of the ranks, in f32, and its sum rounded to that type again.
void all_reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const Messages& memory);

/// As few views as possible of memory of one type that hold these tensors, in the order of their addresses: what an
/// arena leaves between two of them for their alignment is part of it.
std::vector<Tensor> slabs_of(std::vector<Tensor> tensors);

/// How long exchanges of two sizes took, of the bytes of all ranks together.
struct LinkTimes {
  double small_seconds = 0, large_seconds = 0;
  std::int64_t small_bytes = 0, large_bytes = 0;
};
/// By a few exchanges of either size; the same on every rank. Of tensors of the host.
LinkTimes time_link(Ctx& ctx, Collective& ranks);
/// The smallest size at which a tenth of the time is the latency, within bounds.
std::int64_t bucket_bytes(const LinkTimes& times);

}  // namespace qtrain
