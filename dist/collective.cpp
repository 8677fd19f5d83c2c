#include "dist/collective.h"

#include <algorithm>

namespace qtrain {
namespace {

template <class T>
Tensor view(std::vector<T>& values) {
  return view_of(std::span(values), {static_cast<std::int64_t>(values.size())});
}

}  // namespace

void Solo::all_gather(Ctx& ctx, ConstTensor mine, Tensor all) {
  ctx.stream().copy(all.data, mine.data, mine.bytes());
}

void Solo::all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) {
  ctx.stream().copy(received.data, sent.data, sent.bytes());
}

void Solo::reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) {
  if (sum.data != sent.data) ctx.stream().copy(sum.data, sent.data, sent.bytes());
}

std::unique_ptr<Collective> Solo::part(int first, int size) {
  check(first == 0 && size == 1, "the only part of a single rank is that rank");
  return std::make_unique<Solo>();
}

std::unique_ptr<Collective> Solo::counterparts(int size) {
  return part(0, size);
}

bool any_rank(Ctx& ctx, Collective& ranks, bool mine) {
  std::vector<double> values{mine ? 1.0 : 0.0};
  ranks.all_reduce(ctx, view(values), Reduction::max);
  return values[0] != 0;
}

std::string broadcast_text(Ctx& ctx, Collective& ranks, const std::string& mine, int root) {
  std::vector<std::int64_t> length{static_cast<std::int64_t>(mine.size())};
  ranks.broadcast(ctx, view(length), root);
  std::vector<std::uint8_t> bytes(mine.begin(), mine.end());
  bytes.resize(static_cast<std::size_t>(length[0]));
  if (!bytes.empty()) ranks.broadcast(ctx, view(bytes), root);
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> gather_texts(Ctx& ctx, Collective& ranks, std::string_view mine) {
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<std::int64_t> length{static_cast<std::int64_t>(mine.size())}, lengths(size);
  ranks.all_gather(ctx, view(length), view(lengths));
  const auto longest = static_cast<std::size_t>(std::max<std::int64_t>(*std::ranges::max_element(lengths), 1));
  std::vector<std::uint8_t> padded(mine.begin(), mine.end()), all(longest * size);
  padded.resize(longest);
  ranks.all_gather(ctx, view(padded), view(all));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < size; ++r) {
    const auto* begin = all.data() + r * longest;
    texts.emplace_back(begin, begin + lengths[r]);
  }
  return texts;
}

}  // namespace qtrain
