#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/check.h"
#include "config/config.h"
#include "plan/device_speed.h"
#include "plan/gpus.h"
#include "plan/memory_plan.h"
#include "plan/overlap_schedule.h"
#include "plan/step_exchanges.h"
#include "plan/training_flops.h"
#include "train/setup/compute.h"

namespace qtrain {

/// Assumptions about the network between ranks.
struct NetworkOptions {
  std::optional<double> gbps;  ///< Gb/s per GPU between nodes; empty for the GPU's usual value
  Collectives collectives = Collectives::usual;
  std::optional<ExchangeLane> lane = {};  ///< empty for the lane that a run uses
};

/// The work of a run's ranks.
struct RanksWork {
  ComputePlan compute;
  TargetDevice target;
  const GpuModel* gpu = nullptr;             ///< null if the links between ranks are unknown
  std::optional<Ranged<DeviceSpeed>> speed;  ///< of each rank
  Workload batches;
  double micro_batch_tokens = 0;  ///< mean of a rank's micro-batches
  TokenMix mix;
  RunPlace place;
  NetworkOptions network;
};

/// Estimate of the run with one zero_stage.
struct StageEstimate {
  ZeroStage stage;
  RecomputePolicy recompute;
  MemoryPlan memory;                  ///< of each rank
  bool fits = true;                   ///< true if the memory size is unknown
  std::optional<SimulatedStep> step;  ///< usual case of an optimizer step; empty if unknown
  Ranged<double> seconds = {};        ///< per optimizer step, if known
  std::string refused;                ///< why such a run is refused; empty if it is not

  bool can() const { return fits && refused.empty(); }
};

/// Estimate of the run with each zero_stage.
struct RanksEstimate {
  RankLayout layout;
  std::optional<Interconnect> net;
  ExchangeLane lane = ExchangeLane::own;
  double tokens = 0;  ///< per optimizer step, on all ranks
  std::vector<StageEstimate> stages;

  Ranged<double> tokens_per_second(const StageEstimate& s) const {
    return s.seconds.map([this](double seconds) { return tokens / seconds; });
  }
  /// The fastest stage that fits; of two equally fast ones, the one with less memory. Null if none fits or times are
  /// unknown.
  const StageEstimate* fastest() const;
};
/// For a config with several ranks. Memory is exact; time comes from a model: see docs/scaling.md.
RanksEstimate estimate_ranks(const ResolvedConfig& config, const RanksWork& work);

/// The interconnect by the ranks that take part in a collective.
struct RankNets {
  Interconnect all, group, replicas;

  const Interconnect& of(Among among) const {
    return among == Among::all ? all : among == Among::group ? group : replicas;
  }
};
RankNets nets_of(const Interconnect& net, const Sharding& sharding);

/// Seconds of consecutive collectives on GPUs.
double seconds_of(const std::vector<ExchangeCall>& calls, const RankNets& nets, const NetworkOptions& network);
/// The structure of this run's optimizer step, for simulate_step.
StepShape step_shape(const Config& config, const PlannedRun& run);
/// Speed and links of one GPU.
struct ConnectedGpu {
  DeviceSpeed speed;
  Interconnect net;
};
/// Durations of the run's optimizer step on such GPUs.
StepCosts step_costs(const PlannedRun& run, const RanksWork& work, const ConnectedGpu& gpu);

}  // namespace qtrain
