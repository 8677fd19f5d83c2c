#include "dist/rank_group.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "dist/gloo_collective.h"
#include "dist/guarded_collective.h"
#include "dist/nccl_collective.h"
#include "dist/queued_collective.h"

namespace qtrain {

namespace {

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// Debian calls a machine 127.0.1.1 in its own /etc/hosts: the others would look for rank 0 on themselves.
void require_reachable(const RankPlace& place, Store& store, std::chrono::milliseconds timeout) {
  const std::string here = store.local_address();
  if (place.rank == 0) return store.set("address", here);
  if (is_loopback(here)) return;
  const auto first = store.get("address", timeout);
  if (first && is_loopback(*first))
    fail(ErrorKind::usage, {.cause = fmt::format("where rank 0 runs, {} is an address of that machine alone ({})",
                                                 place.store.host, *first),
                            .remedy = "set master_addr (MASTER_ADDR) to an address that all machines reach"});
}

}  // namespace

RankGroup::RankGroup(const std::optional<RankPlace>& place, const Options& options) {
  if (!place) {
    collective_ = std::make_unique<Solo>();
    return;
  }
  if (place->serves_store) server_.emplace(Endpoint{.host = "", .port = place->store.port}, place->attempt);
  const auto timeout = options.timeout;
  store_.emplace(place->store, timeout, place->attempt);
  store_->set_keeper(place->launcher == "qtrain" ? "the launcher" : "rank 0");
  require_reachable(*place, *store_, timeout);
  watchdog_.emplace(Watchdog::Options{.server = place->store,
                                      .rank = place->rank,
                                      .ranks = place->size,
                                      .attempt = place->attempt,
                                      .patience = timeout});
  const RankWatch watch{*store_, *watchdog_};
  try {
    collective_ = GuardedCollective::connected(watch, place->size, [&] {
      std::unique_ptr<Collective> ranks = connect_gloo(*place, *store_, timeout);
      if (options.device.kind == DeviceKind::cpu) return ranks;
      return connect_nccl(std::move(ranks), {.device = options.device, .timeout = timeout}, watch);
    });
    // What is queued on a GPU runs beside the host by itself.
    if (options.device.kind == DeviceKind::cpu)
      collective_ = std::make_unique<QueuedCollective>(std::move(collective_));
  } catch (const std::exception&) {
    tell_failure();
    throw;
  }
}

RankGroup::~RankGroup() {
  if (!watchdog_) return;
  std::uncaught_exceptions() == 0 ? tell_end() : tell_failure();
}

void RankGroup::tell_end() {
  try {
    watchdog_->tell_end(*store_);
  } catch (const Error&) {  // nobody is there any more
  }
}

void RankGroup::tell_failure() {
  try {
    watchdog_->tell_failure(*store_);
  } catch (const Error&) {  // as above
  }
}

}  // namespace qtrain
