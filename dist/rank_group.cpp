#include "dist/rank_group.h"

#include "dist/gloo_collective.h"
#include "dist/guarded_collective.h"

namespace qtrain {

RankGroup::RankGroup(const std::optional<RankPlace>& place, std::chrono::milliseconds timeout) {
  if (!place) {
    collective_ = std::make_unique<Solo>();
    return;
  }
  if (place->serves_store) server_.emplace(Endpoint{.host = "", .port = place->store.port});
  store_.emplace(place->store, timeout);
  watchdog_.emplace(
      Watchdog::Options{.server = place->store, .rank = place->rank, .ranks = place->size, .patience = timeout});
  try {
    collective_ = std::make_unique<GuardedCollective>(connect_gloo(*place, *store_, timeout),
                                                      GuardedCollective::Watch{*store_, *watchdog_});
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    fail(ErrorKind::peer, {.cause = std::string("the ranks cannot be connected: ") + e.what()});
  }
}

}  // namespace qtrain
