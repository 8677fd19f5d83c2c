#include "train/ranks/gradient_buckets.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

constexpr std::int64_t kSmallestBucket = std::int64_t{64} << 10, kLargestBucket = std::int64_t{32} << 20;  // bytes

// Single-threaded on a CPU, since the other threads compute. f64 is summed in f64, everything else in f32.
template <class Sum, class T>
void add_row(std::span<Sum> sum, std::span<const T> row, Sink::Mode mode) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const bool adds = mode == Sink::Mode::accumulate;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const auto x = static_cast<Wide>(row[i]);
    sum[i] = static_cast<Sum>(adds ? sum[i] + x : x);
  }
}

// Calls act(elements, offset in the columns) for a rank's elements in these columns, gradient by gradient. Returns
// their number.
template <class Act>
std::int64_t for_elements(const GradientBucket& bucket, BucketColumns c, std::int64_t rank, const Act& act) {
  const ElementRange& row = bucket.of_rank[static_cast<std::size_t>(rank)];
  const std::int64_t first = row.begin + c.begin, count = std::clamp(row.count - c.begin, std::int64_t{0}, c.count);
  for (const GradientBucket::Part& p : bucket.parts) {
    const std::int64_t begin = std::max(first, p.begin);
    const std::int64_t end = std::min(first + count, p.begin + p.gradient.numel());
    if (begin < end) act(p.gradient.slice(begin - p.begin, end - begin), begin - first);
  }
  return count;
}

// Piece `i` of `n` elements that are cut into pieces of `row` elements.
ElementRange piece_of(std::int64_t n, std::int64_t row, std::int64_t i) {
  const std::int64_t begin = std::min(i * row, n);
  return {begin, std::min(row, n - begin)};
}

double time_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

GradientBucket GradientBucket::of(const ShardGroup& group, int replicas) {
  GradientBucket bucket{.row = (group.longest_row() + replicas - 1) / replicas, .group = &group};
  bucket.add(group.grads, group.unit);
  for (int k = 0; k < replicas; ++k)
    for (int r = 0; r < group.ranks(); ++r) {
      const ElementRange piece = piece_of(group.row_size(r), bucket.row, k);
      bucket.of_rank.push_back({group.row_begin(r) + piece.begin, piece.count});
    }
  return bucket;
}

GradientBucket GradientBucket::of(const Tensor& gradient, int ranks, std::int64_t row) {
  GradientBucket bucket;
  bucket.add(gradient, 0);
  bucket.split(ranks, row);
  return bucket;
}

void GradientBucket::add(const Tensor& gradient, int unit) {
  parts.push_back({gradient.reshaped({gradient.numel()}), unit, elements()});
}

void GradientBucket::split(int ranks, std::int64_t length) {
  row = length;
  for (int r = 0; r < ranks; ++r) of_rank.push_back(piece_of(elements(), row, r));
}

bool GradientBucket::are_rows() const {
  std::int64_t at = 0;
  return parts.size() == 1 && std::ranges::all_of(of_rank, [&](const ElementRange& r) {
           return r.begin == std::exchange(at, at + row) && r.count == row;
         });
}

std::vector<GradientBucket> make_buckets(std::span<const Param* const> trained, int ranks, std::int64_t bytes,
                                         DType wire) {
  const auto size = static_cast<std::int64_t>(size_of(wire));
  std::vector<const Param*> ordered(trained.begin(), trained.end());
  // Unit 0, which is outside the blocks, comes last.
  std::ranges::stable_sort(ordered, std::greater{}, &Param::unit);
  std::vector<GradientBucket> buckets;
  for (const Param* p : ordered) {
    const bool full = !buckets.empty() && buckets.back().row * ranks * size >= bytes;
    if (buckets.empty() || (full && !buckets.back().holds(p->unit))) buckets.emplace_back();
    buckets.back().add(p->grad, p->unit);
    // Rounded up for each gradient, so that the sum over all buckets does not depend on their size.
    buckets.back().row += (p->grad.numel() + ranks - 1) / ranks;
  }
  for (GradientBucket& bucket : buckets) bucket.split(ranks, bucket.row);
  return buckets;
}

Tensor pack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& memory) {
  const Tensor& first = bucket.parts.front().gradient;
  if (c.count == bucket.row && bucket.are_rows() && first.dtype == memory.dtype) return first.reshaped(memory.shape);
  for (std::int64_t r = 0; r < memory.shape[0]; ++r) {
    const Tensor to = memory.slice(r, 1).reshaped({c.count});
    const std::int64_t n = for_elements(
        bucket, c, r, [&](const Tensor& from, std::int64_t at) { copy_alone(ctx, to.slice(at, from.numel()), from); });
    clear_alone(ctx, to.slice(n, c.count - n));
  }
  return memory;
}

void unpack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& sums) {
  for (std::int64_t r = 0; r < sums.shape[0]; ++r) {
    const Tensor from = sums.slice(r, 1).reshaped({c.count});
    for_elements(bucket, c, r,
                 [&](const Tensor& to, std::int64_t at) { copy_alone(ctx, to, from.slice(at, to.numel())); });
  }
}

void add_in_order(Ctx& ctx, const Tensor& sum, const Tensor& received, Sink::Mode mode) {
  if (!sum || sum.numel() == 0) return;
  for (std::int64_t r = 0; r < received.shape[0]; ++r) {
    const Tensor row = received.slice(r, 1).reshaped({received.shape[1]}).slice(0, sum.numel());
    const Sink to{sum, r == 0 ? mode : Sink::Mode::accumulate};
    if (sum.device.kind == DeviceKind::cuda) {
      ops::copy(ctx, {.y = to, .x = row});
      continue;
    }
    dispatch_float(sum.dtype, [&]<class Sum>() {
      dispatch_float(row.dtype,
                     [&]<class T>() { add_row<Sum, T>(sum.span<Sum>(), ConstTensor(row).span<T>(), to.mode); });
    });
  }
}

void copy_alone(Ctx& ctx, const Tensor& to, const Tensor& from) {
  if (!to || !from) return;
  if (to.dtype != from.dtype)
    add_in_order(ctx, to, from.reshaped({1, from.numel()}), Sink::Mode::store);
  else if (to.device.kind == DeviceKind::cuda)
    ctx.stream().copy(to.data, from.data, from.bytes());
  else
    std::memcpy(to.data, from.data, from.bytes());
}

void clear_alone(Ctx& ctx, const Tensor& t) {
  if (!t) return;
  if (t.device.kind == DeviceKind::cpu)
    std::memset(t.data, 0, t.bytes());
  else
    ctx.stream().fill(t.data, 0, t.bytes());
}

std::vector<Tensor> slabs_of(std::vector<Tensor> tensors) {
  constexpr std::ptrdiff_t kAlignment = 256;
  std::ranges::sort(tensors, {}, [](const Tensor& t) { return std::pair(t.data, t.dtype); });
  std::vector<Tensor> all;
  for (const Tensor& t : tensors) {
    if (!all.empty() && all.back().dtype == t.dtype) {
      const std::ptrdiff_t gap = t ? t.data - (all.back().data + all.back().bytes()) : 0;
      if (gap >= 0 && gap < kAlignment) {
        const std::size_t bytes = all.back().bytes() + static_cast<std::size_t>(gap) + t.bytes();
        all.back().shape = {static_cast<std::int64_t>(bytes / size_of(t.dtype))};
        continue;
      }
    }
    all.push_back(t.reshaped({t.numel()}));
  }
  return all;
}

LinkTimes time_link(Ctx& ctx, Collective& ranks) {
  constexpr std::int64_t kSmall = 16, kLarge = std::int64_t{1} << 16;  // elements per rank
  constexpr int kTries = 3;
  std::vector<float> sent(static_cast<std::size_t>(ranks.size() * kLarge)), received(sent.size());
  const auto exchange = [&](std::int64_t n) {
    const auto all = static_cast<std::size_t>(ranks.size() * n);
    ranks.all_to_all(ctx, view_of(std::span(sent).first(all), {ranks.size(), n}),
                     view_of(std::span(received).first(all), {ranks.size(), n}));
  };
  // Takes the fastest of several tries, because a late rank keeps the others waiting.
  const auto fastest = [&](std::int64_t n) {
    exchange(n);
    double least = time_of([&] { exchange(n); });
    for (int i = 1; i < kTries; ++i) least = std::min(least, time_of([&] { exchange(n); }));
    return least;
  };
  std::vector<double> seconds{fastest(kSmall), fastest(kLarge)};
  ranks.all_reduce(ctx, view_of(std::span(seconds), {2}), Reduction::max);
  const auto bytes = [&](std::int64_t n) { return ranks.size() * n * std::int64_t{sizeof(float)}; };
  return {seconds[0], seconds[1], bytes(kSmall), bytes(kLarge)};
}

std::int64_t bucket_bytes(const LinkTimes& t) {
  constexpr double kShare = 0.1;  // share of latency in the time of a bucket
  const double more = t.large_seconds - t.small_seconds;
  if (more <= 0) return kSmallestBucket;
  const double bandwidth = static_cast<double>(t.large_bytes - t.small_bytes) / more;
  const double bytes = t.small_seconds * bandwidth * (1 - kShare) / kShare;
  return std::clamp(static_cast<std::int64_t>(std::min(bytes, static_cast<double>(kLargestBucket))), kSmallestBucket,
                    kLargestBucket);
}

}  // namespace qtrain
