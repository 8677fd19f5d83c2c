#include "dist/rank_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "core/os/loopback.h"
#include "dist/gloo_collective.h"
#include "dist/guarded_collective.h"
#include "dist/nccl_collective.h"
#include "dist/open_files.h"
#include "dist/queued_collective.h"

namespace qtrain {

namespace {

[[noreturn]] void fail_as_unreachable(const Endpoint& meeting, const std::string& address) {
  fail(ErrorKind::usage,
       {.cause = fmt::format("on the machine of rank 0, {} is a loopback address ({})", meeting.host, address),
        .remedy = "set master_addr (MASTER_ADDR) to an address that all machines can reach"});
}

// Debian maps a machine's name to 127.0.1.1 in its own /etc/hosts, so that others would look for rank 0 on themselves.
// An explicit loopback address, or localhost, means a single machine.
void require_reachable(const RankPlace& place, Store& store, std::chrono::milliseconds timeout) {
  const std::string& host = place.store.host;
  if (place.rank == 0) {
    const std::vector<std::string> addresses = Listener({.host = store.own_host()}).addresses();
    const auto other = std::ranges::find_if_not(addresses, is_loopback);
    const std::string here = other == addresses.end() ? addresses.front() : *other;
    if (place.size > place.local_size && is_loopback(here) && !is_loopback(host))
      fail_as_unreachable(place.store, here);
    return store.set("address", here);
  }
  const std::string here = store.local_address();
  if (is_loopback(here)) return;
  const auto first = store.get("address", timeout);
  if (first && is_loopback(*first)) fail_as_unreachable(place.store, *first);
}

// Two processes with one number would each get a part of the other ranks' connections, and none would find all.
void take_number(const RankPlace& place, Store& store) {
  const auto other = store.take_number(place.rank);
  if (!other) return;
  fail(ErrorKind::usage, {.cause = fmt::format("rank {} has been started twice: another process at {} has this number",
                                               place.rank, *other),
                          .remedy = "give every machine its own node_rank, or every rank its own RANK"});
}

}  // namespace

RankGroup::RankGroup(const std::optional<RankPlace>& place, const Options& options) {
  if (!place) {
    collective_ = std::make_unique<Solo>();
    return;
  }
  raise_open_files();
  const Meeting meeting{.at = place->store,
                        .secret = options.secret ? *options.secret : shared_secret(),
                        .attempt = place->attempt,
                        .ranks = place->size,
                        .say = options.say,
                        .meanwhile = [this] { end_if_nobody_can_come(); }};
  if (place->serves_store) server_.emplace(meeting);
  store_.emplace(meeting, options.timeout);
  store_->set_keeper(place->launcher == "qtrain" ? "the launcher" : "rank 0");
  take_number(*place, *store_);
  require_reachable(*place, *store_, options.timeout);
  watchdog_.emplace(Watchdog::Options{
      .meeting = meeting.in_silence(), .rank = place->rank, .ranks = place->size, .patience = options.timeout});
  try {
    meet(*place, options);
  } catch (const std::exception&) {
    announce_failure();
    throw;
  }
}

void RankGroup::meet(const RankPlace& place, const Options& options) {
  const RankWatch watch{*store_, *watchdog_};
  collective_ = GuardedCollective::connected(watch, place.size, [&] {
    require_same_settings(*store_,
                          {.rank = place.rank,
                           .ranks = place.size,
                           .timeout = options.timeout,
                           .meanwhile = [this] { end_if_nobody_can_come(); }},
                          options.settings);
    std::unique_ptr<Collective> ranks = connect_gloo(place, *store_, options.timeout);
    if (options.device.kind == DeviceKind::cpu) return ranks;
    return connect_nccl(std::move(ranks), {.device = options.device, .timeout = options.timeout}, watch);
  });
  // Work that is queued on a GPU is already asynchronous.
  if (options.device.kind == DeviceKind::cpu) collective_ = std::make_unique<QueuedCollective>(std::move(collective_));
}

void RankGroup::end_if_nobody_can_come() {
  if (const auto failure = server_ ? server_->failure() : std::nullopt)
    throw *failure;  // NOLINT(cert-err60-cpp): it is reported like all errors
}

RankGroup::~RankGroup() {
  if (!watchdog_) return;
  std::uncaught_exceptions() == 0 ? announce_end() : announce_failure();
}

void RankGroup::announce_end() {
  try {
    watchdog_->announce_end(*store_);
  } catch (const Error&) {  // the other ranks are already gone
  }
}

void RankGroup::announce_failure() {
  try {
    watchdog_->announce_failure(*store_);
  } catch (const Error&) {  // as above
  }
}

}  // namespace qtrain
