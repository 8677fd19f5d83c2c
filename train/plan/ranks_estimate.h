#pragma once
#include <optional>
#include <vector>

#include "config/config.h"
#include "train/plan/compute.h"
#include "train/plan/gpus.h"
#include "train/plan/memory_plan.h"
#include "train/plan/overlap_schedule.h"
#include "train/plan/step_exchanges.h"
#include "train/plan/training_flops.h"

namespace qtrain {

/// What is taken for granted of the connections between ranks.
struct NetworkOptions {
  std::optional<double> gbps;  ///< of each GPU between nodes, Gb/s; none: usual for the card
  Collectives collectives = Collectives::usual;
};

/// What the ranks of a run compute.
struct RanksWork {
  ComputePlan compute;
  TargetDevice target;
  const GpuModel* gpu = nullptr;           ///< null: how ranks are connected is not known
  std::optional<double> flops_per_second;  ///< of each
  Workload batches;
  double micro_batch_tokens = 0;  ///< mean of a rank's micro-batches
  TokenMix mix;
  NetworkOptions network;
};

/// A run with one zero_stage.
struct StageEstimate {
  ZeroStage stage;
  RecomputePolicy recompute;
  MemoryPlan memory;                  ///< of each rank
  bool fits = true;                   ///< as far as is known
  std::optional<SimulatedStep> step;  ///< an update; none: not known
};

/// The same run with each zero_stage.
struct RanksEstimate {
  RankLayout layout;
  std::optional<Interconnect> net;
  double tokens = 0;  ///< of an update, on all ranks
  std::vector<StageEstimate> stages;

  double tokens_per_second(const StageEstimate& s) const { return tokens / s.step->seconds; }
  /// The fastest one that fits; one with less memory where two are as fast. Null where there is none, or no time.
  const StageEstimate* fastest() const;
};
/// Memory is exact, that of a run; time is a model: see docs/scaling.md. Of a config with several ranks.
RanksEstimate estimate_ranks(const Config& config, const RanksWork& work);

/// Seconds of calls that follow each other.
double seconds_of(const std::vector<ExchangeCall>& calls, const Interconnect& net, const NetworkOptions& network);
/// What the schedule of this run is made of. Its order: see simulate_step.
StepShape step_shape(const Config& config, const RecomputePolicy& policy);
/// A run with this recompute policy on such GPUs.
StepCosts step_costs(const PlannedRun& run, const RanksWork& work, const Interconnect& net);

}  // namespace qtrain
