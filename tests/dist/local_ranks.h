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

namespace qtrain::test {

/// What one of several ranks does.
using RankWork = std::function<void(Ctx& ctx, Collective& ranks)>;

/// Does the work on so many ranks, each a thread of this process; returns the error that each ended with, or "".
inline std::vector<std::string> on_ranks(int size, const RankWork& work,
                                         std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  StoreServer server({.host = "127.0.0.1"});
  const Endpoint meeting{.host = "127.0.0.1", .port = server.port()};
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  const auto run = [&](int rank) {
    try {
      Store store(meeting, timeout);
      const RankPlace place{.rank = rank, .size = size, .store = meeting};
      Watchdog watchdog({.server = meeting, .rank = rank, .ranks = size});
      GuardedCollective ranks(connect_gloo(place, store, timeout), {store, watchdog});
      Ctx ctx({}, MatmulPrecision::storage, 1);
      work(ctx, ranks);
    } catch (const std::exception& e) {
      errors[static_cast<std::size_t>(rank)] = e.what();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& t : threads) t.join();
  return errors;
}

}  // namespace qtrain::test
