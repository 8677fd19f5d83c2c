#include "train/gradient_reducer.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace qtrain {
namespace {

constexpr std::int64_t kMaxRow = std::int64_t{1} << 18;  // elements that a rank sends to another at once

std::vector<Tensor> gradients_of(std::span<Param* const> trained) {
  std::vector<Tensor> gradients;
  for (const Param* p : trained) gradients.push_back(p->grad);
  return gradients;
}

// As few views as possible of memory of one type that holds all of them: what an arena leaves between two tensors for
// their alignment is part of it.
std::vector<Tensor> slabs(const std::vector<Tensor>& tensors) {
  constexpr std::ptrdiff_t kAlignment = 256;
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

std::vector<std::int64_t> begins_of(const std::vector<Tensor>& gradients) {
  std::vector<std::int64_t> begins{0};
  for (const Tensor& g : gradients) begins.push_back(begins.back() + g.numel());
  return begins;
}

void clear(Ctx& ctx, Tensor t) {
  ctx.stream().fill(t.data, 0, t.bytes());
}

}  // namespace

GradientReducer::Layout::Layout(int ranks, std::int64_t elements) {
  row = std::min(kMaxRow, (elements + ranks - 1) / ranks);
  chunks = row == 0 ? 0 : (elements + row * ranks - 1) / (row * ranks);
}

std::size_t GradientReducer::bytes(int ranks, const Options& options, std::int64_t elements) {
  if (options.order == ReductionOrder::ranks) return 0;
  const Layout layout(ranks, elements);
  return static_cast<std::size_t>(layout.row * (2 * ranks + layout.chunks)) * sizeof(float);
}

GradientReducer::GradientReducer(Collective& ranks, const Options& options, std::span<Param* const> trained,
                                 Tensor sums)
    : ranks_(ranks),
      options_(options),
      gradients_(gradients_of(trained)),
      begins_(begins_of(gradients_)),
      sums_(sums),
      sums_of_rank_(sums.device),
      layout_(ranks.size(), begins_.back()),
      total_sums_(static_cast<std::size_t>(sums.numel())) {
  if (!is_ordered() || layout_.row == 0) return;
  const int n = ranks.size();
  memory_ = DeviceMemory(sums.device, bytes(n, options, begins_.back()), "sums of gradients over ranks");
  const Tensor all{memory_.data(), DType::f32, {2 * n + layout_.chunks, layout_.row}, sums.device};
  sent_ = all.slice(0, n);
  received_ = all.slice(n, n);
  total_ = all.slice(2 * n, layout_.chunks);
  Stream stream(sums.device);
  stream.fill(total_.data, 0, total_.bytes());
  stream.synchronize();
}

// Elements of the gradients to what is sent, which ends with zeros, or what was received back to them.
void GradientReducer::copy_chunk(Ctx& ctx, std::int64_t chunk, Way way) {
  const std::int64_t first = chunk * sent_.numel(), last = std::min(first + sent_.numel(), begins_.back());
  const Tensor staged = (way == Way::out ? sent_ : received_).reshaped({sent_.numel()});
  if (way == Way::out) clear(ctx, staged.slice(last - first, staged.numel() - (last - first)));
  auto at = static_cast<std::size_t>(std::ranges::upper_bound(begins_, first) - begins_.begin() - 1);
  for (; at < gradients_.size() && begins_[at] < last; ++at) {
    const std::int64_t begin = std::max(begins_[at], first), end = std::min(begins_[at + 1], last);
    const Tensor gradient = gradients_[at].reshaped({gradients_[at].numel()}).slice(begin - begins_[at], end - begin);
    const Tensor other = staged.slice(begin - first, end - begin);
    ops::copy(ctx, {.y = store(way == Way::out ? other : gradient), .x = way == Way::out ? gradient : other});
    if (way == Way::out) clear(ctx, gradient);
  }
}

void GradientReducer::add_rows(Ctx& ctx, std::int64_t chunk) {
  const Tensor total = total_.slice(chunk, 1);
  for (int r = 0; r < ranks_.size(); ++r) ops::copy(ctx, {.y = accumulate(total), .x = received_.slice(r, 1)});
}

// On the host: they are a few numbers in f64.
void GradientReducer::add_sums(Ctx& ctx) {
  const Tensor mine = sums_of_rank_.of(ctx, sums_);
  const std::int64_t n = mine.numel();
  std::vector<double> all(static_cast<std::size_t>(n * ranks_.size()));
  ranks_.all_gather(ctx, mine, view_of(std::span(all), {ranks_.size(), n}));
  for (std::size_t i = 0; i < all.size(); ++i) total_sums_[i % static_cast<std::size_t>(n)] += all[i];
  clear(ctx, sums_);
}

void GradientReducer::end_micro_batch(Ctx& ctx) {
  if (!is_ordered()) return;
  for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) {
    copy_chunk(ctx, chunk, Way::out);
    ranks_.all_to_all(ctx, sent_, received_);
    add_rows(ctx, chunk);
  }
  add_sums(ctx);
}

void GradientReducer::finish(Ctx& ctx) {
  if (ranks_.size() == 1 && !is_ordered()) return;
  if (!is_ordered()) {
    for (const Tensor& slab : slabs(gradients_)) ranks_.all_reduce(ctx, slab, Reduction::sum);
    return ranks_.all_reduce(ctx, sums_, Reduction::sum);
  }
  for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) {
    ranks_.all_gather(ctx, total_.slice(chunk, 1), received_);
    copy_chunk(ctx, chunk, Way::back);
  }
  if (total_) clear(ctx, total_);  // for the next step
  ctx.stream().copy(sums_.data, total_sums_.data(), sums_.bytes());
  std::ranges::fill(total_sums_, 0.0);
}

}  // namespace qtrain
