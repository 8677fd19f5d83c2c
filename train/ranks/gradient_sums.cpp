#include "train/ranks/gradient_sums.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

constexpr std::int64_t kMaxRow = std::int64_t{1} << 18;     // elements sent to each rank at once
constexpr std::int64_t kMaxOnGpus = std::int64_t{1} << 24;  // elements sent to all ranks, or reduced by NCCL, at once

template <class Act>
void for_columns(const GradientBucket& bucket, std::int64_t most, const Act& act) {
  for (std::int64_t begin = 0; begin < bucket.row; begin += most)
    act(BucketColumns{begin, std::min(most, bucket.row - begin)});
}

// Adds the previous sums to the own row before sending, which saves memory and a later addition.
void scatter_sums(Ctx& ctx, Collective& ranks, const ShardGroup& group, Sink::Mode mode) {
  const int rank = ranks.rank();
  const Tensor row = group.grads.slice(group.row_begin(rank), group.row_size(rank));
  if (mode == Sink::Mode::accumulate) ops::copy(ctx, {.y = accumulate(row), .x = group.own_grads});
  ranks.reduce_scatter(ctx, group.grads, group.own_grads);
}

/// The sums of some columns of a bucket.
struct ColumnSums {
  BucketColumns columns;
  Tensor own;     ///< of this rank's row
  Tensor memory;  ///< [ranks, columns], for the sums of all ranks
};

// Gathers the sums in the dtype of `memory` and writes them to the gradients.
void gather_sums(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const ColumnSums& s) {
  const std::int64_t count = s.columns.count, n = s.own.numel();
  const Tensor own = s.memory.slice(ranks.rank(), 1).reshaped({count});
  copy_alone(ctx, own.slice(0, n), s.own);
  clear_alone(ctx, own.slice(n, count - n));
  ranks.all_gather(ctx, own, s.memory);
  unpack(ctx, bucket, s.columns, s.memory);
}

// The totals in these columns: fewer if the own row is shorter than the longest.
Tensor columns_of_totals(const GradientBucket& bucket, BucketColumns c) {
  const std::int64_t n = bucket.totals.numel(), begin = std::min(c.begin, n);
  return bucket.totals.slice(begin, std::min(c.count, n - begin));
}

// Rows of `count` elements in memory for longer ones.
Tensor shorter_rows(const Tensor& memory, std::int64_t count) {
  const std::int64_t rows = memory.shape[0];
  return memory.reshaped({memory.numel()}).slice(0, rows * count).reshaped({rows, count});
}

}  // namespace

// After the exchange, the send buffer is reused for the f32 sums.
void all_reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const Tensor& memory) {
  const int n = ranks.size();
  check(n > 1, "all_reduce of gradients needs several ranks");
  for_columns(bucket, memory.shape[1], [&](BucketColumns c) {
    const Tensor both = shorter_rows(memory, c.count), received = both.slice(n, n);
    ranks.all_to_all(ctx, pack(ctx, bucket, c, both.slice(0, n)), received);
    const Tensor sum{both.data, DType::f32, {c.count}, both.device};
    add_in_order(ctx, sum, received, Sink::Mode::store);
    gather_sums(ctx, ranks, bucket, {.columns = c, .own = sum, .memory = received});
  });
}

GradientSums::GradientSums(const ReductionOptions& options, Place place, Stores stores)
    : options_(options),
      place_(place),
      sharding_(stores.front()->sharding()),
      device_(stores.front()->values().device()) {
  std::vector<const Param*> whole;
  for (const ParamStore* store : stores) {
    for (const ShardGroup& group : store->groups())
      if (group.trained()) buckets_.push_back(bucket_of(group));
    for (const Param& p : store->all())
      if (p.trained()) whole.push_back(&p);
  }
  if (sharding_.divides_trained() || (place.ranks == 1 && !in_order())) return;
  buckets_ = make_buckets(whole, place.ranks, options.bucket_bytes, options.wire);
  for (GradientBucket& bucket : buckets_) bucket.totals = {nullptr, DType::f32, {bucket.row}, device_};
}

// Its totals are the sums of the elements that this rank sums.
GradientBucket GradientSums::bucket_of(const ShardGroup& group) const {
  GradientBucket bucket = GradientBucket::of(group, in_order() ? sharding_.replicas : 1);
  const int row = place_.rank % group.ranks();
  const ElementRange own = bucket.of_rank[static_cast<std::size_t>(in_order() ? place_.rank : row)];
  bucket.totals = group.own_grads.slice(own.begin - group.row_begin(row), own.count);
  return bucket;
}

// The sums that this rank updates with, split among the replicas.
GradientBucket GradientSums::own_sums(const GradientBucket& bucket) const {
  if (!bucket.group) return bucket;
  const int n = sharding_.replicas;
  return GradientBucket::of(bucket.group->own_grads, n, (bucket.group->longest_row() + n - 1) / n);
}

// A rank alone in its group sends nothing, but with micro_batches order it must produce the same bits as several ranks.
GradientSums::Wire GradientSums::wire_of(const GradientBucket& bucket) const {
  const DType dtype = bucket.group ? *bucket.group->grad_dtype : DType::f32;  // unsharded gradients may have several
  const bool rounded = rounds(dtype) && (in_order() || bucket.ranks() > 1);
  return {.dtype = rounded ? options_.wire : dtype,
          .rounds = rounded,
          .rounds_sums = rounds(dtype) && !in_order(),
          .scatters = on_gpu() && !in_order() && bucket.group && bucket.group->is_even()};
}

// Elements sent to each rank at once. More for shards on GPUs, where the hosts synchronize on every call.
std::int64_t GradientSums::columns_of(const GradientBucket& bucket) const {
  if (sharding_.divides_trained())
    return std::min(bucket.row, on_gpu() ? std::max(kMaxRow, kMaxOnGpus / bucket.ranks()) : kMaxRow);
  return std::min(all_rows(), kMaxRow);
}

// The sum of all rows, which does not depend on the size of buckets: a run may choose that by measurements.
std::int64_t GradientSums::all_rows() const {
  std::int64_t sum = 0;
  for (const GradientBucket& bucket : buckets_) sum += bucket.row;
  return sum;
}

// Rows to copy gradients to, unless they can be sent where they are, and rows to receive, unless sums overwrite what
// was sent.
Tensor GradientSums::memory_to_reduce(const GradientBucket& bucket) const {
  const Wire wire = wire_of(bucket);
  const bool fits = bucket.group && bucket.are_rows() && columns_of(bucket) == bucket.row;
  const int buffers = wire.in_place() ? 0 : (wire.rounds || !fits) + !wire.scatters;
  return {memory_.data(), wire.dtype, {buffers * bucket.ranks(), columns_of(bucket)}, device_};
}

Tensor GradientSums::memory_to_share(const GradientBucket& sums) const {
  return {memory_.data(), options_.wire, {2 * sums.ranks(), columns_of(sums)}, device_};
}

// Elements of the copies that NCCL reduces in place of wider gradients.
std::int64_t GradientSums::rounded_at_once() const {
  std::int64_t wider = 0;
  for (const GradientBucket& bucket : buckets_)
    for (const auto& [gradient, unit, begin] : bucket.parts)
      if (rounds(gradient.dtype)) wider += gradient.numel();
  return std::min(wider, kMaxOnGpus);
}

std::size_t GradientSums::staging_bytes() const {
  if (!reduces() && on_gpu()) return static_cast<std::size_t>(rounded_at_once()) * size_of(options_.wire);
  std::size_t most = 0;
  for (const GradientBucket& bucket : buckets_) {
    most = std::max(most, memory_to_reduce(bucket).bytes());
    if (bucket.group && wire_of(bucket).rounds_sums && sharding_.replicas > 1)
      most = std::max(most, memory_to_share(own_sums(bucket)).bytes());
  }
  return most;
}

std::size_t GradientSums::total_bytes() const {
  return shares_at_end() ? static_cast<std::size_t>(all_rows()) * sizeof(float) : 0;
}

void GradientSums::allocate() {
  if (bytes() == 0) return;
  memory_ = DeviceMemory(device_, bytes(), "gradient exchange buffers");
  if (!shares_at_end()) return;
  std::byte* next = memory_.data() + staging_bytes();
  for (GradientBucket& bucket : buckets_) bucket.totals.data = std::exchange(next, next + bucket.totals.bytes());
  Stream stream(device_);
  stream.fill(memory_.data() + staging_bytes(), 0, total_bytes());
  stream.synchronize();
}

// Adds in rank order, except by reduce_scatter, which also overwrites the gradients if it adds them in place.
void GradientSums::reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, Sink::Mode mode) const {
  const Wire wire = wire_of(bucket);
  if (wire.in_place()) return scatter_sums(ctx, ranks, *bucket.group, mode);
  const Tensor memory = memory_to_reduce(bucket);
  const int n = ranks.size();
  for_columns(bucket, memory.shape[1], [&](BucketColumns c) {
    const Tensor rows = shorter_rows(memory, c.count);
    const Tensor sent = pack(ctx, bucket, c, rows.slice(0, n));
    Tensor received = rows.slice(rows.shape[0] - n, n);
    if (wire.scatters) {
      received = sent.slice(ranks.rank(), 1);
      ranks.reduce_scatter(ctx, sent, received.reshaped({c.count}));
    } else {
      ranks.all_to_all(ctx, sent, received);
    }
    add_in_order(ctx, columns_of_totals(bucket, c), received, mode);
  });
}

void GradientSums::share(Ctx& ctx, Collective& replicas, const GradientBucket& bucket) const {
  if (bucket.group && bucket.group->own_grads.numel() == 0) return;
  if (in_order()) return gather_totals(ctx, replicas, bucket);
  const GradientBucket sums = own_sums(bucket);
  const bool in_place = bucket.group ? !wire_of(bucket).rounds_sums : on_gpu();
  if (in_place) return all_reduce_in_place(ctx, replicas, sums);
  all_reduce(ctx, replicas, sums, memory_to_share(sums));
}

// Adds in the order of Collective::all_reduce. Unsharded gradients may be rounded first.
void GradientSums::all_reduce_in_place(Ctx& ctx, Collective& replicas, const GradientBucket& sums) const {
  std::vector<Tensor> gradients;
  for (const GradientBucket::Part& p : sums.parts) gradients.push_back(p.gradient);
  for (const Tensor& slab : slabs_of(std::move(gradients))) {
    if (!rounds(slab.dtype)) {
      replicas.all_reduce(ctx, slab, Reduction::sum);
      continue;
    }
    const std::int64_t most = rounded_at_once();
    for (std::int64_t begin = 0; begin < slab.numel(); begin += most) {
      const Tensor exact = slab.slice(begin, std::min(most, slab.numel() - begin));
      const Tensor rounded{memory_.data(), options_.wire, exact.shape, device_};
      copy_alone(ctx, rounded, exact);
      replicas.all_reduce(ctx, rounded, Reduction::sum);
      copy_alone(ctx, exact, rounded);
    }
  }
}

// Sums are not rounded, so that the bits depend neither on the number of ranks nor on sharding. They use the memory of
// what is sent and received together.
void GradientSums::gather_totals(Ctx& ctx, Collective& replicas, const GradientBucket& bucket) const {
  const GradientBucket sums = own_sums(bucket);
  for_columns(bucket, columns_of(bucket), [&](BucketColumns c) {
    const Tensor all{memory_.data(), bucket.totals.dtype, {replicas.size(), c.count}, device_};
    gather_sums(ctx, replicas, sums, {.columns = c, .own = columns_of_totals(bucket, c), .memory = all});
  });
  if (!bucket.group) clear_alone(ctx, bucket.totals);  // for the next step
}

}  // namespace qtrain
