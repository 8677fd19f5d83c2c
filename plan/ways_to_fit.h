#pragma once
#include <functional>
#include <string>
#include <vector>

#include "plan/run_time.h"
#include "train/setup/compute.h"

namespace qtrain {

/// A config key with a new value.
struct KeyChange {
  std::string key;
  Json value;
};
/// "key=value key=value", as on the command line.
std::string text_of(const std::vector<KeyChange>& changes);
Json json_of(const std::vector<KeyChange>& changes);

/// Changes to a config with which the run needs less memory.
struct WayToFit {
  std::vector<KeyChange> changes;
  std::size_t bytes = 0;    ///< memory with these changes
  double slowdown = 1;      ///< time of an optimizer step relative to the unchanged config
  bool same_result = true;  ///< whether results are the same except for the order of sums
  std::string costs = {};   ///< if not: what changes
};

/// A run to plan repeatedly with changed configs.
struct PlanQuestion {
  const Config& config;
  ComputePlan compute;
  TargetDevice target;
  std::function<Workload(const Config&)> work;       ///< batches for a config
  std::function<StepWork(const Config&)> step_work;  ///< steps for a config
  Ranged<DeviceSpeed> speed;
  std::function<bool(const Config&)> supported;  ///< whether the combination of values is supported
};

/// The plan of a config, with the recompute policy and the copies that a run would choose.
struct AnsweredPlan {
  MemoryPlan memory;
  RecomputePolicy policy;
  Ranged<StepTime> time;
};
AnsweredPlan plan_of(const PlanQuestion& question, const Config& config);

/// Up to `most` cheapest changes with which the run needs at most `room` bytes, each checked by planning. Sorted by
/// added time; another optimizer or type of weights counts as a quarter more time, training an adapter instead of all
/// weights as twice the time. Empty if nothing helps.
std::vector<WayToFit> ways_to_fit(const PlanQuestion& question, std::size_t room, std::size_t most = 3);

}  // namespace qtrain
