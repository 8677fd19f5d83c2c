#include "train/gradient_reducer.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "core/timeline.h"

namespace qtrain {
namespace {

/// What the sums of gradients over ranks need.
struct SumsMemory {
  std::int64_t row = 0;     ///< elements of a message
  std::int64_t totals = 0;  ///< elements whose sums are kept

  SumsMemory(int ranks, ReductionOrder order, std::span<Param* const> trained) {
    for (const Param* p : trained) totals += (p->spec.shape.numel() + ranks - 1) / ranks;
    row = std::min(totals, GradientReducer::kMaxRow);
    if (order == ReductionOrder::ranks) totals = 0;
  }
  std::int64_t elements(int ranks) const { return 2 * ranks * row + totals; }
};

// Sums by NCCL, or of one rank, need no memory of ours.
bool needs_memory(Device device, int ranks, ReductionOrder order) {
  return order == ReductionOrder::micro_batches || (device.kind == DeviceKind::cpu && ranks > 1);
}

Tensor message(const Tensor& memory, std::int64_t ranks, std::int64_t count) {
  return memory.reshaped({memory.numel()}).slice(0, ranks * count).reshaped({ranks, count});
}

}  // namespace

std::size_t GradientReducer::bytes(Device device, int ranks, const Options& options, std::span<Param* const> trained) {
  const std::size_t stream = options.beside && device.kind == DeviceKind::cuda ? ExchangeStream::kBytes : 0;
  if (!needs_memory(device, ranks, options.order)) return stream;
  return stream + static_cast<std::size_t>(SumsMemory(ranks, options.order, trained).elements(ranks)) * sizeof(float);
}

GradientReducer::GradientReducer(Collective& ranks, const Options& options, std::span<Param* const> trained,
                                 Tensor sums)
    : ranks_(ranks),
      options_(options),
      sums_(sums),
      sums_of_rank_(sums.device),
      total_sums_(static_cast<std::size_t>(sums.numel())) {
  const int n = ranks.size();
  if (trained.empty() || (n == 1 && !is_ordered())) return;
  buckets_ = make_buckets(trained, n, options.bucket_bytes);
  if (options.beside && sums.device.kind == DeviceKind::cuda) stream_.emplace(sums.device);
  if (needs_memory(sums.device, n, options.order)) allocate(trained);
}

void GradientReducer::allocate(std::span<Param* const> trained) {
  const int n = ranks_.size();
  const SumsMemory memory(n, options_.order, trained);
  const std::int64_t elements = memory.elements(n);
  memory_ =
      DeviceMemory(sums_.device, static_cast<std::size_t>(elements) * sizeof(float), "sums of gradients over ranks");
  const Tensor all{memory_.data(), DType::f32, {elements}, sums_.device};
  sent_ = all.slice(0, n * memory.row).reshaped({n, memory.row});
  received_ = all.slice(n * memory.row, n * memory.row).reshaped({n, memory.row});
  totals_ = all.slice(2 * n * memory.row, memory.totals);
  std::int64_t at = 0;
  for (GradientBucket& b : buckets_) {
    if (!is_ordered()) break;
    b.totals = totals_.slice(at, b.row());
    at += b.row();
  }
  Stream stream(sums_.device);
  stream.fill(totals_.data, 0, totals_.bytes());
  stream.synchronize();
}

GradientReducer::~GradientReducer() {
  if (std::uncaught_exceptions() > 0) ranks_.disconnect();
  if (stream_) return;  // a device waits before memory is freed
  try {
    wait();
  } catch (const std::exception&) {  // somebody has waited for it, or an error is on its way
  }
}

// For the last first: on a stream it comes behind the others.
void GradientReducer::wait() const {
  for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) bucket->done.wait();
}

// What a bucket has of the micro-batch before is on its way until it has left.
void GradientReducer::enter(Ctx& /*ctx*/, const Entry& entry) {
  if (entry.gradients == Gradients::no) return;
  for (const GradientBucket& bucket : buckets_)
    if (bucket.holds(entry.unit)) bucket.done.wait();
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
    sent_ ? add(c, ranks, bucket) : add_in_place(c, ranks, bucket);
  });
}

// By NCCL.
void GradientReducer::add_in_place(Ctx& ctx, Collective& ranks, const GradientBucket& bucket) {
  std::vector<Tensor> gradients;
  for (const GradientParts& p : bucket.parts) gradients.push_back(p.gradient);
  for (const Tensor& slab : slabs_of(std::move(gradients))) ranks.all_reduce(ctx, slab, Reduction::sum);
}

// The sums go back at once, or stay where they are until the step is done.
void GradientReducer::add(Ctx& ctx, Collective& ranks, const GradientBucket& bucket) {
  const int n = ranks.size();
  for (std::int64_t begin = 0; begin < bucket.row(); begin += sent_.shape[1]) {
    const BucketColumns c{begin, std::min(sent_.shape[1], bucket.row() - begin)};
    const Tensor sent = message(sent_, n, c.count), received = message(received_, n, c.count);
    pack(ctx, bucket, c, sent);
    ranks.all_to_all(ctx, sent, received);
    if (is_ordered()) {
      add_in_order(ctx, bucket.totals.slice(c.begin, c.count), received, Sink::Mode::accumulate);
      continue;
    }
    const Tensor sum = sent.slice(0, 1).reshaped({c.count});
    add_in_order(ctx, sum, received, Sink::Mode::store);
    ranks.all_gather(ctx, sum, received);
    unpack(ctx, bucket, c, received);
  }
  if (is_ordered())
    for (const GradientParts& p : bucket.parts) clear_alone(ctx, p.gradient);
}

void GradientReducer::share_totals(Ctx& ctx, Collective& ranks, const GradientBucket& bucket) {
  for (std::int64_t begin = 0; begin < bucket.row(); begin += sent_.shape[1]) {
    const BucketColumns c{begin, std::min(sent_.shape[1], bucket.row() - begin)};
    const Tensor received = message(received_, ranks.size(), c.count);
    ranks.all_gather(ctx, bucket.totals.slice(c.begin, c.count), received);
    unpack(ctx, bucket, c, received);
  }
  clear_alone(ctx, bucket.totals);  // for the next step
}

// On the host: they are a few numbers in f64.
void GradientReducer::add_sums(Ctx& ctx) {
  const Tensor mine = sums_of_rank_.of(ctx, sums_);
  const std::int64_t n = mine.numel();
  std::vector<double> all(static_cast<std::size_t>(n * ranks_.size()));
  ranks_.all_gather(ctx, mine, view_of(std::span(all), {ranks_.size(), n}));
  for (std::size_t i = 0; i < all.size(); ++i) total_sums_[i % static_cast<std::size_t>(n)] += all[i];
  clear_alone(ctx, sums_);
}

void GradientReducer::end_micro_batch(Ctx& ctx) {
  if (!options_.beside && adds())
    for (GradientBucket& bucket : buckets_) begin_adding(ctx, bucket);
  if (is_ordered()) add_sums(ctx);
  --left_;
}

void GradientReducer::finish(Ctx& ctx) {
  if (ranks_.size() == 1 && !is_ordered()) return;
  std::optional<timeline::Span> span;
  if (!buckets_.empty()) span.emplace("wait for sums");
  if (!is_ordered()) {
    wait();
    return ranks_.all_reduce(ctx, sums_, Reduction::sum);
  }
  for (GradientBucket& bucket : buckets_)
    bucket.done = start(ctx, [this, &bucket](Ctx& c, Collective& ranks) { share_totals(c, ranks, bucket); });
  wait();
  ctx.stream().copy(sums_.data, total_sums_.data(), sums_.bytes());
  std::ranges::fill(total_sums_, 0.0);
}

}  // namespace qtrain
