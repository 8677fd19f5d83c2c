#include "train/ranks/gradient_reducer.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "core/timeline.h"

namespace qtrain {
namespace {

bool by_nccl(Device device, ReductionOrder order) {
  return order == ReductionOrder::ranks && device.kind == DeviceKind::cuda;
}

/// Buffer sizes for gradient reduction, in elements.
struct SumsMemory {
  std::int64_t row = 0;      ///< elements of a message per rank
  std::int64_t totals = 0;   ///< elements whose sums are kept
  std::int64_t rounded = 0;  ///< elements that NCCL reduces at once in rounded copies
  DType wire;

  SumsMemory(Device device, int ranks, const ReductionOptions& options, std::span<Param* const> trained)
      : wire(options.wire) {
    std::int64_t wider = 0;
    for (const Param* p : trained) {
      if (size_of(p->spec.grad_dtype.value_or(p->spec.dtype)) > size_of(wire)) wider += p->spec.shape.numel();
      totals += (p->spec.shape.numel() + ranks - 1) / ranks;
    }
    const bool alone = ranks == 1 && options.order == ReductionOrder::ranks, nccl = by_nccl(device, options.order);
    if (!alone && !nccl) row = std::min(totals, GradientReducer::kMaxRow);
    if (!alone && nccl) rounded = std::min(wider, GradientReducer::kMaxRounded);
    if (options.order == ReductionOrder::ranks) totals = 0;
  }
  std::size_t message_bytes(int ranks) const { return static_cast<std::size_t>(ranks * row) * size_of(wire); }
  std::size_t bytes(int ranks) const {
    return 2 * message_bytes(ranks) + static_cast<std::size_t>(totals) * sizeof(float) +
           static_cast<std::size_t>(rounded) * size_of(wire);
  }
};

}  // namespace

std::size_t GradientReducer::bytes(Device device, int ranks, const ReductionOptions& options,
                                   std::span<Param* const> trained) {
  const std::size_t stream = options.beside && device.kind == DeviceKind::cuda ? ExchangeStream::kBytes : 0;
  return stream + SumsMemory(device, ranks, options, trained).bytes(ranks);
}

GradientReducer::GradientReducer(Collective& ranks, const ReductionOptions& options, std::span<Param* const> trained)
    : ranks_(ranks), options_(options) {
  const int n = ranks.size();
  if (trained.empty() || (n == 1 && !is_ordered())) return;
  device_ = trained.front()->grad.device;
  buckets_ = make_buckets(trained, n, options.bucket_bytes, options.wire);
  if (options.beside && device_.kind == DeviceKind::cuda) stream_.emplace(device_);
  allocate(trained);
}

void GradientReducer::allocate(std::span<Param* const> trained) {
  const int n = ranks_.size();
  const SumsMemory memory(device_, n, options_, trained);
  if (memory.bytes(n) == 0) return;
  memory_ = DeviceMemory(device_, memory.bytes(n), "gradient reduction buffers");
  const auto part = [&](std::size_t at, DType dtype, Shape shape) {
    return Tensor{memory_.data() + at, dtype, shape, device_};
  };
  if (memory.rounded > 0) {
    rounded_ = part(0, memory.wire, {memory.rounded});
    return;
  }
  const std::size_t message = memory.message_bytes(n);
  messages_ = {part(0, memory.wire, {n, memory.row}), part(message, memory.wire, {n, memory.row})};
  shared_totals_ = part(0, DType::f32, {n, memory.row});
  totals_ = part(2 * message, DType::f32, {memory.totals});
  std::int64_t at = 0;
  for (GradientBucket& b : buckets_) {
    if (!is_ordered()) break;
    b.totals = totals_.slice(at, b.row());
    at += b.row();
  }
  Stream stream(device_);
  stream.fill(totals_.data, 0, totals_.bytes());
  stream.synchronize();
}

GradientReducer::~GradientReducer() {
  if (std::uncaught_exceptions() > 0) ranks_.disconnect();
  if (stream_) return;  // the stream waits before the memory is freed
  try {
    wait();
  } catch (const std::exception&) {  // it was already waited for, or an error is propagating
  }
}

// Waits in reverse: on a stream, the last exchange comes after the others.
void GradientReducer::wait() const {
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) bucket->done.wait();
}

// Waits for the bucket's all-reduce of the previous micro-batch.
void GradientReducer::enter(Ctx& /*ctx*/, const Entry& entry) {
  if (entry.gradients == Gradients::no) return;
  for (const GradientBucket& bucket : buckets_)
    if (bucket.holds(entry.unit)) bucket.done.wait();
}

bool GradientReducer::acts_on(const Entry& entry) const {
  const auto holds_it = [&](const GradientBucket& b) { return b.holds(entry.unit); };
  return options_.beside && is_ordered() && entry.gradients == Gradients::yes &&
         std::ranges::any_of(buckets_, holds_it);
}

bool GradientReducer::acts_on_gradients(int unit) const {
  const auto ends_with_it = [&](const GradientBucket& b) { return b.units.back() == unit; };
  return exchanges_gradients() && std::ranges::any_of(buckets_, ends_with_it);
}

void GradientReducer::finish_gradients(Ctx& ctx, int unit) {
  if (!exchanges_gradients()) return;
  for (GradientBucket& bucket : buckets_)
    if (bucket.units.back() == unit) begin_adding(ctx, bucket);
}

Pending GradientReducer::start(Ctx& ctx, const ExchangeStream::Work& work) {
  if (stream_) return stream_->start(ctx, ranks_, work);
  return ranks_.start([&ctx, work](Collective& ranks) { work(ctx, ranks); });
}

void GradientReducer::begin_adding(Ctx& ctx, GradientBucket& bucket) {
  bucket.done = start(ctx, [this, &bucket](Ctx& c, Collective& ranks) {
    by_nccl(device_, options_.order) ? add_in_place(c, ranks, bucket) : add(c, ranks, bucket);
  });
}

// Reduces with NCCL.
void GradientReducer::add_in_place(Ctx& ctx, Collective& ranks, const GradientBucket& bucket) {
  std::vector<Tensor> gradients;
  for (const GradientParts& p : bucket.parts) gradients.push_back(p.gradient);
  for (const Tensor& slab : slabs_of(std::move(gradients)))
    is_rounded(slab) ? add_rounded(ctx, ranks, slab) : ranks.all_reduce(ctx, slab, Reduction::sum);
}

void GradientReducer::add_rounded(Ctx& ctx, Collective& ranks, const Tensor& slab) {
  for (std::int64_t begin = 0; begin < slab.numel(); begin += rounded_.numel()) {
    const std::int64_t n = std::min(rounded_.numel(), slab.numel() - begin);
    const Tensor exact = slab.slice(begin, n), rounded = rounded_.slice(0, n);
    copy_alone(ctx, rounded, exact);
    ranks.all_reduce(ctx, rounded, Reduction::sum);
    copy_alone(ctx, exact, rounded);
  }
}

// Returns the sums at once, or keeps them until the step is done.
void GradientReducer::add(Ctx& ctx, Collective& ranks, const GradientBucket& bucket) {
  if (!is_ordered()) return all_reduce(ctx, ranks, bucket, messages_);
  reduce(ctx, ranks, bucket, {.sum = bucket.totals, .mode = Sink::Mode::accumulate, .memory = messages_});
  for (const GradientParts& p : bucket.parts) clear_alone(ctx, p.gradient);
}

// Sums are not rounded, so that the bits depend neither on the number of ranks nor on sharding.
void GradientReducer::share_totals(Ctx& ctx, Collective& ranks, const GradientBucket& bucket) {
  const std::int64_t n = ranks.size(), row = messages_.row();
  for (std::int64_t begin = 0; begin < bucket.row(); begin += row) {
    const BucketColumns c{begin, std::min(row, bucket.row() - begin)};
    const Tensor all = shared_totals_.reshaped({n * row}).slice(0, n * c.count).reshaped({n, c.count});
    ranks.all_gather(ctx, bucket.totals.slice(c.begin, c.count), all);
    unpack(ctx, bucket, c, all);
  }
  clear_alone(ctx, bucket.totals);  // for the next step
}

void GradientReducer::end_micro_batch(Ctx& ctx) {
  if (!options_.beside && adds())
    for (GradientBucket& bucket : buckets_) begin_adding(ctx, bucket);
  --left_;
}

void GradientReducer::finish_step(Ctx& ctx) {
  if (buckets_.empty()) return;
  const timeline::Span span("wait for sums");
  if (is_ordered())
    for (GradientBucket& bucket : buckets_)
      bucket.done = start(ctx, [this, &bucket](Ctx& c, Collective& ranks) { share_totals(c, ranks, bucket); });
  wait();
}

}  // namespace qtrain
