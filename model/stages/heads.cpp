#include "model/stages/heads.h"

#include <algorithm>

#include "kernels/head_copy.h"

namespace qtrain::stages {

SharedHeads::SharedHeads(Ctx& ctx, const SharedKeys& shared, const Tensor& k, const Tensor& v)
    : ctx_(ctx), shared_(shared), k_(k), v_(v), step_(shared.share.heads_at_a_time(k.shape[1])) {
  begin(0);
}

SharedHeads::Part SharedHeads::part(std::int64_t number) {
  const std::int64_t first = number * step_, count = std::min(step_, heads() - first);
  const Shape all{k_.shape[0] * shared_.share.ranks, count, k_.shape[2]};
  return {first, count, part_of(buffers(number).keys, all), part_of(buffers(number).values, all)};
}

void SharedHeads::begin(std::int64_t number) {
  if (number >= parts()) return;
  const Part next = part(number);
  const auto own = [&](const Tensor& all, const Tensor& memory) {
    if (has_all_at_once()) return all;
    const Tensor copied = part_of(memory, {all.shape[0], next.count, all.shape[2]});
    ops::copy_heads(ctx_, {.y = store(copied), .x = all, .x_first = next.first, .count = next.count});
    return copied;
  };
  shared_.exchange->begin_gather(ctx_, own(k_, buffers(number).own_keys), next.k);
  shared_.exchange->begin_gather(ctx_, own(v_, buffers(number).own_values), next.v);
}

SharedHeads::Part SharedHeads::take(std::int64_t number) {
  begin(number + 1);
  for (int i = 0; i < 2; ++i) shared_.exchange->finish_gather(ctx_);
  return part(number);
}

void SharedHeads::reduce(const Part& part, const Tensor& memory, const Tensor& spare, const Sink& own) {
  const Tensor all = part_of(memory, part.k.shape);
  if (has_all_at_once()) return shared_.exchange->reduce(ctx_, all, spare, own);
  const Tensor sum = part_of(shared_.buffers.d_own, {k_.shape[0], part.count, k_.shape[2]});
  shared_.exchange->reduce(ctx_, all, spare, store(sum));
  ops::copy_heads(ctx_, {.y = own, .x = sum, .y_first = part.first, .count = part.count});
}

}  // namespace qtrain::stages
