#include "train/gradient_reducer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

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

/// Calls act(begin, end) for parts of a range of elements, on all threads.
template <class Act>
void in_parts(Ctx& ctx, std::int64_t elements, const Act& act) {
  constexpr std::int64_t kPart = 1 << 14;
  ctx.pool().run((elements + kPart - 1) / kPart,
                 [&](std::int64_t task, int) { act(task * kPart, std::min(elements, (task + 1) * kPart)); });
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
      layout_(ranks.size(), begins_.back()),
      total_sums_(static_cast<std::size_t>(sums.numel())) {
  if (!is_ordered() || layout_.chunks == 0) return;
  const int n = ranks.size();
  memory_ = DeviceMemory(sums.device, bytes(n, options, begins_.back()), "sums of gradients over ranks");
  const Tensor all{memory_.data(), DType::f32, {2 * n + layout_.chunks, layout_.row}, sums.device};
  sent_ = all.slice(0, n);
  received_ = all.slice(n, n);
  total_ = all.slice(2 * n, layout_.chunks);
  std::memset(total_.data, 0, total_.bytes());
}

// Elements of the gradients to what is sent, which ends with zeros, or what was received back to them.
void GradientReducer::copy_chunk(Ctx& ctx, std::int64_t chunk, Way way) {
  const std::int64_t first = chunk * sent_.numel(), last = std::min(first + sent_.numel(), begins_.back());
  float* const staged = (way == Way::out ? sent_ : received_).as<float>();
  if (way == Way::out) std::fill(staged + (last - first), staged + sent_.numel(), 0.0F);
  auto at = static_cast<std::size_t>(std::ranges::upper_bound(begins_, first) - begins_.begin() - 1);
  for (; at < gradients_.size() && begins_[at] < last; ++at) {
    const std::int64_t begin = std::max(begins_[at], first), end = std::min(begins_[at + 1], last);
    dispatch_float(gradients_[at].dtype, [&]<class T>() {
      T* const gradient = gradients_[at].as<T>() + (begin - begins_[at]);
      float* const other = staged + (begin - first);
      in_parts(ctx, end - begin, [&](std::int64_t from, std::int64_t to) {
        if (way == Way::out) {
          for (std::int64_t i = from; i < to; ++i) other[i] = static_cast<float>(gradient[i]);
          std::fill(gradient + from, gradient + to, T(0.0F));
        } else {
          for (std::int64_t i = from; i < to; ++i) gradient[i] = T(other[i]);
        }
      });
    });
  }
}

void GradientReducer::add_rows(Ctx& ctx, std::int64_t chunk) {
  float* const total = total_.slice(chunk, 1).as<float>();
  const float* const received = received_.as<float>();
  in_parts(ctx, layout_.row, [&](std::int64_t from, std::int64_t to) {
    for (int r = 0; r < ranks_.size(); ++r)
      for (std::int64_t i = from; i < to; ++i) total[i] += received[r * layout_.row + i];
  });
}

void GradientReducer::add_sums(Ctx& ctx) {
  const std::int64_t n = sums_.numel();
  std::vector<double> all(static_cast<std::size_t>(n * ranks_.size()));
  ranks_.all_gather(ctx, sums_, view_of(std::span(all), {ranks_.size(), n}));
  for (std::size_t i = 0; i < all.size(); ++i) total_sums_[i % static_cast<std::size_t>(n)] += all[i];
  std::memset(sums_.data, 0, sums_.bytes());
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
  if (layout_.chunks > 0) std::memset(total_.data, 0, total_.bytes());  // for the next step
  std::memcpy(sums_.data, total_sums_.data(), sums_.bytes());
  std::ranges::fill(total_sums_, 0.0);
}

}  // namespace qtrain
