#include "dist/guarded_collective.h"

#include <fmt/format.h>

#include <array>
#include <system_error>

#include "core/parallel.h"
#include "core/timeline.h"

namespace qtrain {
namespace {

constexpr std::size_t kRemembered =
    16;  // calls, to distinguish a rank that is behind from one that makes different calls

constexpr std::array<std::string_view, 6> kKinds{"all_reduce", "broadcast",      "all_gather",
                                                 "all_to_all", "reduce_scatter", "barrier"};

}  // namespace

/// The call that a rank is about to make; it must be equal on all ranks.
struct GuardedCollective::Call {
  enum Kind : std::int64_t { all_reduce, broadcast, all_gather, all_to_all, reduce_scatter, barrier };
  std::int64_t kind;
  std::int64_t dtype = 0, elements = 0, detail = 0;  ///< detail: the reduction or the root

  std::string text() const {
    const std::string_view name = kKinds[static_cast<std::size_t>(kind)];
    return kind == barrier ? std::string(name)
                           : fmt::format("{} of {} {}", name, elements, name_of(static_cast<DType>(dtype)));
  }
};

void GuardedCollective::all_reduce(Ctx& ctx, Tensor values, Reduction reduction) {
  guard(
      {Call::all_reduce, static_cast<std::int64_t>(values.dtype), values.numel(), static_cast<std::int64_t>(reduction)},
      [&] { inner_->all_reduce(ctx, values, reduction); });
}

void GuardedCollective::broadcast(Ctx& ctx, Tensor values, int root) {
  guard({Call::broadcast, static_cast<std::int64_t>(values.dtype), values.numel(), root},
        [&] { inner_->broadcast(ctx, values, root); });
}

void GuardedCollective::all_gather(Ctx& ctx, ConstTensor mine, Tensor all) {
  check(all.numel() == size() * mine.numel(), "all_gather: the output must have the elements of all ranks");
  guard({Call::all_gather, static_cast<std::int64_t>(mine.dtype), mine.numel()},
        [&] { inner_->all_gather(ctx, mine, all); });
}

void GuardedCollective::all_to_all(Ctx& ctx, ConstTensor sent, Tensor received) {
  check(sent.numel() == received.numel() && sent.numel() % size() == 0,
        "all_to_all: there must be a row for each rank");
  guard({Call::all_to_all, static_cast<std::int64_t>(sent.dtype), sent.numel()},
        [&] { inner_->all_to_all(ctx, sent, received); });
}

void GuardedCollective::reduce_scatter(Ctx& ctx, ConstTensor sent, Tensor sum) {
  check(sent.numel() == size() * sum.numel() && sent.dtype == sum.dtype,
        "reduce_scatter: there must be a row for each rank");
  guard({Call::reduce_scatter, static_cast<std::int64_t>(sent.dtype), sent.numel()},
        [&] { inner_->reduce_scatter(ctx, sent, sum); });
}

void GuardedCollective::barrier(Ctx& ctx) {
  guard({Call::barrier}, [&] { inner_->barrier(ctx); });
}

std::unique_ptr<Collective> GuardedCollective::part(int first, int size) {
  const RankWatch watch = watch_of(watch_.number(first), watch_.stride);
  return connected(watch, size, [&] { return inner_->part(first, size); });
}

std::unique_ptr<Collective> GuardedCollective::counterparts(int size) {
  const RankWatch watch = watch_of(watch_.number(rank() % size), watch_.stride * size);
  return connected(watch, this->size() / size, [&] { return inner_->counterparts(size); });
}

// Registers the meeting with the watchdog, because a rank that waits there for the others is not computing.
std::unique_ptr<Collective> GuardedCollective::connected(const RankWatch& watch, int size, const Connect& connect) {
  const RankWait meeting{.group = watch.group,
                         .first = watch.first,
                         .stride = watch.stride,
                         .size = size,
                         .call = watch.group.empty() ? "the meeting of all ranks" : "the meeting of a group of ranks"};
  watch.watchdog.enter(meeting, {});
  try {
    auto ranks = std::make_unique<GuardedCollective>(connect(), watch);
    watch.watchdog.leave(watch.group);
    return ranks;
  } catch (const Error&) {
    throw;
  } catch (const std::system_error& e) {  // a thread could not be started: the others are not to blame
    fail_thread(e);
  } catch (const std::exception& e) {  // from the library
    fail_for_lost_rank(watch, meeting.call, e.what());
  }
}

// The watch of the next collective that is split off from this one.
RankWatch GuardedCollective::watch_of(int first, int stride) {
  return {watch_.store, watch_.watchdog, first, stride, fmt::format("{}{}+{}/", watch_.group, first, ++parts_)};
}

void GuardedCollective::guard(const Call& call, const std::function<void()>& act) {
  ++calls_;
  const std::string text = call.text();
  const timeline::Span span(label_ + text);
  before_.insert(before_.begin(), sequence_);
  if (before_.size() > kRemembered) before_.pop_back();
  sequence_ = after(sequence_, call);
  watch_.watchdog.enter({.group = watch_.group,
                         .first = watch_.first,
                         .stride = watch_.stride,
                         .size = size(),
                         .number = calls_,
                         .sequence = sequence_,
                         .before = before_,
                         .call = text},
                        [this] { inner_->disconnect(); });
  try {
    inner_->label_next(static_cast<std::uint32_t>(sequence_ ^ (sequence_ >> 32)));
    act();
    watch_.watchdog.leave(watch_.group);
  } catch (const Error&) {
    watch_.watchdog.fail(watch_.group);
    inner_->give_up();
    throw;
  } catch (const std::exception& e) {  // from the library, which knows addresses, not ranks
    watch_.watchdog.fail(watch_.group);
    inner_->give_up();
    fail_for_lost_rank(watch_, fmt::format("collective {}, {}", calls_, text), e.what());
  }
}

// FNV-1a over the numbers of a call with a mixing step, because a label is only half of the hash.
std::uint64_t GuardedCollective::after(std::uint64_t sequence, const Call& call) {
  constexpr std::uint64_t kPrime = 0x100000001b3, kMix = 0xff51afd7ed558ccd;
  for (const std::int64_t number : {call.kind, call.dtype, call.elements, call.detail}) {
    sequence = (sequence ^ static_cast<std::uint64_t>(number)) * kPrime;
    sequence = (sequence ^ (sequence >> 33)) * kMix;
  }
  return sequence;
}

}  // namespace qtrain
