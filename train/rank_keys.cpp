#include "train/rank_keys.h"

#include <algorithm>

namespace qtrain {
namespace {

// First pieces are in the order of the ranks, second ones in the reverse order.
void reverse_pieces(const Tensor& half, int ranks) {
  const auto bytes = static_cast<std::ptrdiff_t>(half.bytes()) / ranks;
  for (int a = 0, b = ranks - 1; a < b; ++a, --b)
    std::swap_ranges(half.data + a * bytes, half.data + (a + 1) * bytes, half.data + b * bytes);
}

// to = or += the sum of the rows of `received`, in their order.
template <class T>
void add_rows(Ctx& ctx, ConstTensor received, int ranks, const Sink& to) {
  constexpr std::int64_t kPart = 1 << 14;
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const std::int64_t n = to.t.numel();
  const T* const rows = received.as<T>();
  T* const out = to.t.as<T>();
  ctx.pool().run((n + kPart - 1) / kPart, [&](std::int64_t task, int) {
    for (std::int64_t i = task * kPart; i < std::min(n, (task + 1) * kPart); ++i) {
      Sum sum = static_cast<Sum>(rows[i]);
      for (int r = 1; r < ranks; ++r) sum += static_cast<Sum>(rows[r * n + i]);
      if (to.mode == Sink::Mode::accumulate) sum += static_cast<Sum>(out[i]);
      out[i] = static_cast<T>(sum);
    }
  });
}

}  // namespace

void RankKeys::gather(Ctx& ctx, ConstTensor mine, Tensor all) {
  const std::int64_t count = mine.shape[0] / ContextShare::kPieces, half = count * ranks_.size();
  for (int which = 0; which < ContextShare::kPieces; ++which)
    ranks_.all_gather(ctx, mine.slice(which * count, count), all.slice(which * half, half));
  reverse_pieces(all.slice(half, half), ranks_.size());
}

void RankKeys::reduce(Ctx& ctx, Tensor all, Tensor spare, const Sink& mine) {
  const std::int64_t count = mine.t.shape[0] / ContextShare::kPieces, half = count * ranks_.size();
  reverse_pieces(all.slice(half, half), ranks_.size());
  const Tensor received = spare.slice(0, half);
  for (int which = 0; which < ContextShare::kPieces; ++which) {
    ranks_.all_to_all(ctx, all.slice(which * half, half), received);
    const Sink to{mine.t.slice(which * count, count), mine.mode};
    dispatch_float(to.t.dtype, [&]<class T>() { add_rows<T>(ctx, received, ranks_.size(), to); });
  }
}

}  // namespace qtrain
