#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dist/gloo_collective.h"
#include "dist/guarded_collective.h"
#include "dist/store.h"
#include "tests/dist/meetings.h"

namespace qtrain::test {

/// The work of one of several ranks.
using RankWork = std::function<void(Ctx& ctx, Collective& ranks)>;

struct LocalRanks {
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  /// Makes the collective that is guarded from gloo's.
  std::function<std::unique_ptr<Collective>(std::unique_ptr<Collective>)> wrap;
};

/// Runs `work` on `size` ranks, each a thread of this process; returns the error of each rank, or "".
inline std::vector<std::string> on_ranks_of(int size, const RankWork& work, const LocalRanks& how) {
  StoreServer server(free_meeting());
  const Meeting meeting = meeting_at(server.port());
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  const auto run = [&](int rank) {
    try {
      Store store(meeting, how.timeout);
      const RankPlace place{.rank = rank, .size = size, .store = meeting.at};
      Watchdog watchdog(
          {.meeting = meeting, .rank = rank, .ranks = size, .check_after = std::chrono::milliseconds(400)});
      const auto ranks = GuardedCollective::connected({store, watchdog}, size, [&] {  //
        return how.wrap(connect_gloo(place, store, how.timeout));
      });
      Ctx ctx({}, MatmulPrecision::storage, 1);
      work(ctx, *ranks);
    } catch (const std::exception& e) {
      errors[static_cast<std::size_t>(rank)] = e.what();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& t : threads) t.join();
  return errors;
}

inline std::vector<std::string> on_ranks(int size, const RankWork& work,
                                         std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  const auto as_it_is = [](std::unique_ptr<Collective> ranks) { return ranks; };
  return on_ranks_of(size, work, {.timeout = timeout, .wrap = as_it_is});
}
}  // namespace qtrain::test
