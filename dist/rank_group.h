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

/// The ranks of a run, as one of them sees the others.
class RankGroup {
 public:
  struct Options {
    std::chrono::milliseconds timeout{};               ///< until all are there, and of each collective
    Device device = {};                                ///< of this rank
    std::optional<RankSecret> secret = {};             ///< of the run; none: shared_secret
    RankSettings settings = {};                        ///< that all ranks have to have alike
    std::function<void(const std::string&)> say = {};  ///< Meeting::say
  };
  /// Waits until all are there; for a process that is the only one there is nobody to wait for. Errors: ErrorKind::peer
  /// where a rank does not come; those of require_same_settings, and of NcclLibrary with a GPU.
  RankGroup(const std::optional<RankPlace>& place, const Options& options);
  /// While an exception is on its way it tells the others that this rank failed.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  Collective& collective() { return *collective_; }

 private:
  void meet(const RankPlace& place, const Options& options);
  void tell_end();
  void tell_failure();

  std::optional<StoreServer> server_;
  std::optional<Store> store_;
  std::optional<Watchdog> watchdog_;
  std::unique_ptr<Collective> collective_;
};

}  // namespace qtrain
