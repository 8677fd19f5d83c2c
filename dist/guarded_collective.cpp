#include "dist/guarded_collective.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "core/timeline.h"

namespace qtrain {
namespace {

constexpr std::array<std::string_view, 6> kKinds{"all_reduce", "broadcast",      "all_gather",
                                                 "all_to_all", "reduce_scatter", "barrier"};

}  // namespace

/// What a rank is about to do; equal on all ranks.
struct GuardedCollective::Call {
  enum Kind : std::int64_t { all_reduce, broadcast, all_gather, all_to_all, reduce_scatter, barrier };
  std::int64_t kind;
  std::int64_t dtype = 0, elements = 0, detail = 0;  ///< the reduction, the root

  std::string text() const {
    const std::string_view name = kKinds[static_cast<std::size_t>(kind)];
    return kind == barrier ? std::string(name)
                           : fmt::format("{} of {} {}", name, elements, name_of(static_cast<DType>(dtype)));
  }
};

void GuardedCollective::all_reduce(Ctx& ctx, Tensor values, Reduction reduction) {
  guard(
      ctx,
      {Call::all_reduce, static_cast<std::int64_t>(values.dtype), values.numel(), static_cast<std::int64_t>(reduction)},
      [&] { inner_->all_reduce(ctx, values, reduction); });
}

void GuardedCollective::broadcast(Ctx& ctx, Tensor values, int root) {
  guard(ctx, {Call::broadcast, static_cast<std::int64_t>(values.dtype), values.numel(), root},
        [&] { inner_->broadcast(ctx, values, root); });
}

void GuardedCollective::all_gather(Ctx& ctx, ConstTensor mine, Tensor all) {
  check(all.numel() == size() * mine.numel(), "all_gather: another number of elements than ranks have");
  guard(ctx, {Call::all_gather, static_cast<std::int64_t>(mine.dtype), mine.numel()},
        [&] { inner_->all_gather(ctx, mine, all); });
}

void GuardedCollective::all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) {
  check(sent.numel() == received.numel() && sent.numel() % size() == 0, "all_to_all: not a row for each rank");
  guard(ctx, {Call::all_to_all, static_cast<std::int64_t>(sent.dtype), sent.numel()},
        [&] { inner_->all_to_all(ctx, sent, received); });
}

void GuardedCollective::reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) {
  check(sent.numel() == size() * sum.numel() && sent.dtype == sum.dtype, "reduce_scatter: not a row for each rank");
  guard(ctx, {Call::reduce_scatter, static_cast<std::int64_t>(sent.dtype), sent.numel()},
        [&] { inner_->reduce_scatter(ctx, sent, sum); });
}

void GuardedCollective::barrier(Ctx& ctx) {
  guard(ctx, {Call::barrier}, [&] { inner_->barrier(ctx); });
}

std::unique_ptr<Collective> GuardedCollective::part(int first, int size) {
  return std::make_unique<GuardedCollective>(
      inner_->part(first, size), RankWatch{watch_.store, watch_.watchdog, watch_.number(first), watch_.stride});
}

std::unique_ptr<Collective> GuardedCollective::counterparts(int size) {
  return std::make_unique<GuardedCollective>(
      inner_->counterparts(size),
      RankWatch{watch_.store, watch_.watchdog, watch_.number(rank() % size), watch_.stride * size});
}

void GuardedCollective::guard(Ctx& ctx, const Call& call, const std::function<void()>& act) {
  ++calls_;
  const std::string text = call.text();
  const timeline::Span span(label_ + text);
  watch_.watchdog.enter(text);
  try {
    compare(ctx, call);
    act();
    watch_.watchdog.leave();
  } catch (const Error&) {
    inner_->give_up();
    throw;
  } catch (const std::exception& e) {  // of the library: it knows addresses, not ranks
    inner_->give_up();
    fail_for_lost_rank(watch_, fmt::format("collective {}, {}", calls_, call.text()), e.what());
  }
}

void GuardedCollective::compare(Ctx& ctx, const Call& call) {
  const std::array<std::int64_t, 5> mine{calls_, call.kind, call.dtype, call.elements, call.detail};
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(size()));
  inner_->all_gather(ctx, view_of(std::span<const std::int64_t>(mine), {5}), view_of(std::span(all), {size(), 5}));
  for (int r = 0; r < size(); ++r) {
    const std::int64_t* theirs = all.data() + std::ptrdiff_t{5} * r;
    if (std::equal(mine.begin(), mine.end(), theirs)) continue;
    const Call other{theirs[1], theirs[2], theirs[3], theirs[4]};
    fail(ErrorKind::peer,
         {.cause = fmt::format("the ranks do different things: rank {} comes to its collective {}, {}; "
                               "rank {} to its collective {}, {}",
                               watch_.number(rank()), calls_, call.text(), watch_.number(r), theirs[0], other.text()),
          .remedy = "this is a bug; please report it with the config"});
  }
}

}  // namespace qtrain
