#pragma once
#include <functional>
#include <string>
#include <vector>

#include "plan/run_time.h"
#include "train/setup/compute.h"

namespace qtrain {

/// A key with another value than the config has.
struct KeyChange {
  std::string key;
  Json value;
};
/// "key=value key=value", as the command line takes them.
std::string text_of(const std::vector<KeyChange>& changes);
Json json_of(const std::vector<KeyChange>& changes);

/// Changes of a config under which the same run takes less memory.
struct WayToFit {
  std::vector<KeyChange> changes;
  std::size_t bytes = 0;    ///< of the plan with them
  double slowdown = 1;      ///< time of an optimizer step, as a multiple of that of the config as it is
  bool same_result = true;  ///< whether the run computes the same numbers, but for the order of sums
  std::string costs = {};   ///< where not: what becomes different
};

/// A run that is planned over and over with changes.
struct PlanQuestion {
  const Config& config;
  ComputePlan compute;
  TargetDevice target;
  std::function<Workload(const Config&)> work;       ///< the batches of a config
  std::function<StepWork(const Config&)> step_work;  ///< what its steps are like
  Ranged<DeviceSpeed> speed;
  std::function<bool(const Config&)> supported;  ///< whether a run would take the values together
};

/// The plan of a config, under the policy and with the copies that a run would choose.
struct AnsweredPlan {
  MemoryPlan memory;
  RecomputePolicy policy;
  Ranged<StepTime> time;
};
AnsweredPlan plan_of(const PlanQuestion& question, const Config& config);

/// The cheapest changes, at most `most`, with each of which the plan takes no more than `room` bytes; each was planned.
/// By the time that they cost; another optimizer, adapter or type of weights counts as a quarter more time, and an
/// adapter instead of all weights as twice the time. Empty where nothing helps.
std::vector<WayToFit> ways_to_fit(const PlanQuestion& question, std::size_t room, std::size_t most = 3);

}  // namespace qtrain
