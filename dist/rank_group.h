#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dist/collective.h"
#include "dist/rank_place.h"
#include "dist/same_settings.h"
#include "dist/store.h"
#include "dist/watchdog.h"

namespace qtrain {

/// The ranks of a run, as seen by one of them.
class RankGroup {
 public:
  struct Options {
    std::chrono::milliseconds timeout{};               ///< for all ranks to connect, and for each collective
    Device device = {};                                ///< of this rank
    std::optional<RankSecret> secret = {};             ///< of the run; if not set, shared_secret()
    RankSettings settings = {};                        ///< settings that must be equal on all ranks
    std::function<void(const std::string&)> say = {};  ///< Meeting::say
  };
  /// Waits for all ranks; returns at once if this is the only one. Throws ErrorKind::peer if a rank does not connect,
  /// and as require_same_settings and (with a GPU) NcclLibrary do.
  RankGroup(const std::optional<RankPlace>& place, const Options& options);
  /// Tells the others that this rank has finished or, during stack unwinding, that it failed.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  Collective& collective() { return *collective_; }

 private:
  void meet(const RankPlace& place, const Options& options);
  void end_if_nobody_can_come();
  void announce_end();
  void announce_failure();

  std::optional<StoreServer> server_;
  std::optional<Store> store_;
  std::optional<Watchdog> watchdog_;
  std::unique_ptr<Collective> collective_;
};

}  // namespace qtrain
