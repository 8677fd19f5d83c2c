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

/// A piece of a gradient within the message for or from one rank.
struct Piece {
  const GradientParts& parts;
  std::int64_t begin, count;  ///< within the rank's part, even if the part is shorter
  std::int64_t at;            ///< offset in the message
};

void for_pieces(const GradientBucket& bucket, BucketColumns c, const std::function<void(const Piece&)>& act) {
  const auto first = std::ranges::upper_bound(bucket.begins, c.begin) - bucket.begins.begin() - 1;
  for (auto i = static_cast<std::size_t>(first); i < bucket.parts.size(); ++i) {
    const std::int64_t begin = std::max(bucket.begins[i], c.begin);
    const std::int64_t end = std::min(bucket.begins[i + 1], c.begin + c.count);
    if (begin >= end) break;
    act({bucket.parts[i], begin - bucket.begins[i], end - begin, begin - c.begin});
  }
}

// The elements of a piece that a rank actually has.
Tensor there(const Piece& piece, std::int64_t rank) {
  const ElementRange& part = piece.parts.of_rank[static_cast<std::size_t>(rank)];
  const std::int64_t begin = std::min(piece.begin, part.count);
  return piece.parts.gradient.slice(part.begin + begin, std::min(piece.count, part.count - begin));
}

double time_of(const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

GradientParts GradientParts::even(Tensor gradient, int ranks) {
  const std::int64_t n = gradient.numel(), row = (n + ranks - 1) / ranks;
  GradientParts parts{.gradient = gradient.reshaped({n}), .row = row};
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t begin = std::min(r * row, n);
    parts.of_rank.push_back({begin, std::min(row, n - begin)});
  }
  return parts;
}

bool GradientParts::are_rows() const {
  std::int64_t at = 0;
  return std::ranges::all_of(of_rank, [&](const ElementRange& part) {
    return part.begin == std::exchange(at, at + row) && part.count == row;
  });
}

bool GradientBucket::holds(int unit) const {
  return std::ranges::find(units, unit) != units.end();
}

void GradientBucket::add(GradientParts p) {
  if (units.empty() || units.back() != p.unit) units.push_back(p.unit);
  begins.push_back(begins.back() + p.row);
  parts.push_back(std::move(p));
}

std::vector<GradientBucket> make_buckets(std::span<Param* const> trained, int ranks, std::int64_t bytes, DType wire) {
  const auto size = static_cast<std::int64_t>(size_of(wire));
  std::vector<Param*> ordered(trained.begin(), trained.end());
  // Unit 0, which is outside the blocks, comes last.
  std::ranges::stable_sort(ordered, std::greater{}, &Param::unit);
  std::vector<GradientBucket> buckets;
  for (const Param* p : ordered) {
    const bool full = !buckets.empty() && buckets.back().row() * ranks * size >= bytes;
    if (buckets.empty() || (full && !buckets.back().holds(p->unit))) buckets.emplace_back();
    GradientParts parts = GradientParts::even(p->grad, ranks);
    parts.unit = p->unit;
    buckets.back().add(std::move(parts));
  }
  return buckets;
}

Tensor pack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& memory) {
  const GradientParts& first = bucket.parts.front();
  if (bucket.parts.size() == 1 && c.count == bucket.row() && first.are_rows()) {
    const Tensor rows = first.gradient.reshaped(memory.shape);
    if (memory.dtype == rows.dtype) return rows;
    copy_alone(ctx, memory, rows);
    return memory;
  }
  for_pieces(bucket, c, [&](const Piece& piece) {
    for (std::int64_t r = 0; r < memory.shape[0]; ++r) {
      const Tensor from = there(piece, r);
      const Tensor to = memory.slice(r, 1).reshaped({c.count}).slice(piece.at, piece.count);
      const std::int64_t n = from.numel();
      if (n > 0) copy_alone(ctx, to.slice(0, n), from);
      if (n < piece.count) clear_alone(ctx, to.slice(n, piece.count - n));
    }
  });
  return memory;
}

void unpack(Ctx& ctx, const GradientBucket& bucket, BucketColumns c, const Tensor& sums) {
  for_pieces(bucket, c, [&](const Piece& piece) {
    for (std::int64_t r = 0; r < sums.shape[0]; ++r) {
      const Tensor to = there(piece, r);
      if (to.numel() == 0) continue;
      copy_alone(ctx, to, sums.slice(r, 1).reshaped({c.count}).slice(piece.at, to.numel()));
    }
  });
}

void add_in_order(Ctx& ctx, const Tensor& sum, const Tensor& received, Sink::Mode mode) {
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

Messages Messages::of(std::int64_t ranks, std::int64_t count) const {
  const auto part = [&](const Tensor& t) {
    return t.reshaped({t.numel()}).slice(0, ranks * count).reshaped({ranks, count});
  };
  return {part(sent), part(received)};
}

void reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const PartialSum& own) {
  const std::int64_t row = own.memory.row();
  for (std::int64_t begin = 0; begin < bucket.row(); begin += row) {
    const BucketColumns c{begin, std::min(row, bucket.row() - begin)};
    const Messages m = own.memory.of(ranks.size(), c.count);
    const Tensor sent = pack(ctx, bucket, c, m.sent);
    Tensor rows = m.received;
    if (own.scatters) {
      rows = sent.slice(ranks.rank(), 1);
      ranks.reduce_scatter(ctx, sent, rows.reshaped({c.count}));
    } else {
      ranks.all_to_all(ctx, sent, rows);
    }
    if (const std::int64_t n = std::min(c.count, own.sum.numel() - begin); n > 0)
      add_in_order(ctx, own.sum.slice(begin, n), rows, own.mode);
  }
}

// After the exchange, the send buffer is reused for the f32 sums.
void all_reduce(Ctx& ctx, Collective& ranks, const GradientBucket& bucket, const Messages& memory) {
  const int n = ranks.size();
  check(n > 1, "all_reduce of gradients needs several ranks");
  for (std::int64_t begin = 0; begin < bucket.row(); begin += memory.row()) {
    const BucketColumns c{begin, std::min(memory.row(), bucket.row() - begin)};
    const Messages m = memory.of(n, c.count);
    ranks.all_to_all(ctx, pack(ctx, bucket, c, m.sent), m.received);
    const Tensor sum{m.sent.data, DType::f32, {c.count}, m.sent.device};
    add_in_order(ctx, sum, m.received, Sink::Mode::store);
    const Tensor own = m.received.slice(ranks.rank(), 1).reshaped({c.count});
    copy_alone(ctx, own, sum);
    ranks.all_gather(ctx, own, m.received);
    unpack(ctx, bucket, c, m.received);
  }
}

void copy_alone(Ctx& ctx, const Tensor& to, const Tensor& from) {
  if (to.device.kind == DeviceKind::cuda) {
    if (to.dtype == from.dtype) return ctx.stream().copy(to.data, from.data, from.bytes());
    return ops::copy(ctx, {.y = store(to), .x = from});
  }
  if (to.dtype == from.dtype) {
    std::memcpy(to.data, from.data, from.bytes());
    return;
  }
  dispatch_float(to.dtype, [&]<class To>() {
    dispatch_float(from.dtype,
                   [&]<class T>() { add_row<To, T>(to.span<To>(), ConstTensor(from).span<T>(), Sink::Mode::store); });
  });
}

void clear_alone(Ctx& ctx, const Tensor& t) {
  if (t.device.kind == DeviceKind::cpu)
    std::memset(t.data, 0, t.bytes());
  else
    ctx.stream().fill(t.data, 0, t.bytes());
}

std::vector<Tensor> slabs_of(std::vector<Tensor> tensors) {
  constexpr std::ptrdiff_t kAlignment = 256;
  std::ranges::sort(tensors, {}, &Tensor::data);
  std::vector<Tensor> all;
  for (const Tensor& t : tensors) {
    if (!all.empty() && all.back().dtype == t.dtype) {
      const std::ptrdiff_t gap = t.data - (all.back().data + all.back().bytes());
      if (gap >= 0 && gap < kAlignment) {
        const auto bytes = static_cast<std::size_t>(t.data + t.bytes() - all.back().data);
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
