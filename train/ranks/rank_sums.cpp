#include "train/ranks/rank_sums.h"

#include <algorithm>
#include <span>

#include "train/ranks/gradient_buckets.h"

namespace qtrain {

RankSums::RankSums(Collective& ranks, ReductionOrder order, Tensor sums)
    : ranks_(ranks),
      order_(order),
      sums_(sums),
      of_rank_(sums.device),
      totals_(static_cast<std::size_t>(sums.numel())) {}

void RankSums::end_micro_batch(Ctx& ctx) {
  if (!in_order()) return;
  const Tensor mine = of_rank_.of(ctx, sums_);
  const std::int64_t n = mine.numel();
  std::vector<double> all(static_cast<std::size_t>(n * ranks_.size()));
  ranks_.all_gather(ctx, mine, view_of(std::span(all), {ranks_.size(), n}));
  for (std::size_t i = 0; i < all.size(); ++i) totals_[i % static_cast<std::size_t>(n)] += all[i];
  clear_alone(ctx, sums_);
}

void RankSums::finish_step(Ctx& ctx) {
  if (!in_order()) {
    if (ranks_.size() > 1) ranks_.all_reduce(ctx, sums_, Reduction::sum);
    return;
  }
  ctx.stream().copy(sums_.data, totals_.data(), sums_.bytes());
  std::ranges::fill(totals_, 0.0);
}

}  // namespace qtrain
