#include "dist/nccl_session.h"

#include <fmt/format.h>

#include <thread>

namespace qtrain {

NcclSession::NcclSession(const Options& options, const RankWatch& watch)
    : options_(options),
      watch_(watch),
      queued_({.device = options.device,
               .timeout = options.timeout,
               .error = [this] { return queued_error(); },
               .give_up = [this] { give_up(); },
               .waits = [this](const std::string& call) { watch_.watchdog.wait_on_device(call); }}) {}

void NcclSession::queue(Ctx& ctx, const Call& call, const NcclCommunicator::Act& act) {
  throw_if_given_up();
  ctx.stream().check_after_waits([this] { throw_if_given_up(); });
  queued_.add(ctx.stream(), call.text, [&] { call.ranks.run(call.name, act); });
}

void NcclSession::add(NcclCommunicator& communicator) {
  const std::lock_guard lock(mutex_);
  communicators_.push_back(&communicator);
}

void NcclSession::remove(NcclCommunicator& communicator) {
  const std::lock_guard lock(mutex_);
  std::erase(communicators_, &communicator);
}

// Ended ranks are checked first, because NCCL does not notice that a process on the same machine has ended.
std::string NcclSession::queued_error() {
  if (watch_.watchdog.misses_rank()) return "a rank has ended";
  const std::lock_guard lock(mutex_);
  for (NcclCommunicator* c : communicators_)
    if (std::string error = c->queued_error(); !error.empty()) return error;
  return {};
}

// Aborts all communicators in parallel, because aborting one may wait for all work of the device, including calls of
// the others.
void NcclSession::give_up() {
  const std::lock_guard lock(mutex_);
  std::vector<std::thread> threads;
  for (NcclCommunicator* c : communicators_) threads.emplace_back([c] { c->give_up(); });
  for (std::thread& t : threads) t.join();
}

void NcclSession::end() {
  queued_.end("the ranks have disconnected");
}

void NcclSession::throw_if_given_up() {
  const auto failure = queued_.failure();
  if (!failure) return;
  if (!failure->why.empty()) fail_for_broken_call(watch_, failure->call, failure->why);
  fail_for_lost_rank(watch_, failure->call, "it did not finish in time");
}

}  // namespace qtrain
