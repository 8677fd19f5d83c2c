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

// NCCL does not notice inside of a machine that a process has ended.
std::string NcclSession::queued_error() {
  if (watch_.watchdog.misses_rank()) return "a rank has ended";
  const std::lock_guard lock(mutex_);
  for (NcclCommunicator* c : communicators_)
    if (std::string error = c->queued_error(); !error.empty()) return error;
  return {};
}

// At once: what ends one of them may wait for all that the device is at, calls of the others too.
void NcclSession::give_up() {
  const std::lock_guard lock(mutex_);
  std::vector<std::thread> threads;
  for (NcclCommunicator* c : communicators_) threads.emplace_back([c] { c->give_up(); });
  for (std::thread& t : threads) t.join();
}

void NcclSession::end() {
  queued_.end("the ranks have parted");
}

void NcclSession::throw_if_given_up() {
  const auto failure = queued_.failure();
  if (!failure) return;
  if (!failure->why.empty()) fail_for_broken_call(watch_, failure->call, failure->why);
  fail_for_lost_rank(watch_, failure->call, "it was not done in time");
}

}  // namespace qtrain
