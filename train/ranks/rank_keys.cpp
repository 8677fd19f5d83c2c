#include "train/ranks/rank_keys.h"

#include <utility>

#include "kernels/rank_rows.h"
#include "report/metrics.h"

namespace qtrain {
namespace {

// First pieces are in rank order, second ones in reverse order.
void reverse_pieces(Ctx& ctx, const Tensor& half, int ranks) {
  ops::reverse_rows(ctx, {.x = half.reshaped({ranks, half.numel() / ranks})});
}

}  // namespace

void RankKeys::begin_gather(Ctx& ctx, ConstTensor mine, Tensor all) {
  const Stopwatch watch;
  const std::int64_t count = mine.shape[0] / ContextShare::kPieces, half = count * ranks_.size();
  Pending pending = ranks_.start([&ctx, mine, all, count, half](Collective& ranks) {
    for (int which = 0; which < ContextShare::kPieces; ++which)
      ranks.all_gather(ctx, mine.slice(which * count, count), all.slice(which * half, half));
  });
  gathers_.push_back({std::move(pending), all.slice(half, half)});
  seconds_ += watch.seconds();
}

void RankKeys::finish_gather(Ctx& ctx) {
  const Stopwatch watch;
  const Gather gather = std::move(gathers_.front());
  gathers_.pop_front();
  gather.pending.wait();
  reverse_pieces(ctx, gather.second, ranks_.size());
  seconds_ += watch.seconds();
}

void RankKeys::reduce(Ctx& ctx, Tensor all, Tensor spare, const Sink& mine) {
  const Stopwatch watch;
  const std::int64_t count = mine.t.shape[0] / ContextShare::kPieces, half = count * ranks_.size();
  reverse_pieces(ctx, all.slice(half, half), ranks_.size());
  const Tensor received = spare.slice(0, half);
  for (int which = 0; which < ContextShare::kPieces; ++which) {
    ranks_.all_to_all(ctx, all.slice(which * half, half), received);
    const Tensor piece = mine.t.slice(which * count, count);
    ops::add_rows(ctx, {.y = {piece, mine.mode}, .x = received.reshaped({ranks_.size(), piece.numel()})});
  }
  seconds_ += watch.seconds();
}

}  // namespace qtrain
