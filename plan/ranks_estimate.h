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

/// What is taken for granted of the connections between ranks.
struct NetworkOptions {
  std::optional<double> gbps;  ///< of each GPU between nodes, Gb/s; none: usual for the card
  Collectives collectives = Collectives::usual;
  std::optional<ExchangeLane> lane = {};  ///< none: that of a run
};

/// What the ranks of a run compute.
struct RanksWork {
  ComputePlan compute;
  TargetDevice target;
  const GpuModel* gpu = nullptr;             ///< null: how ranks are connected is not known
  std::optional<Ranged<DeviceSpeed>> speed;  ///< of each
  Workload batches;
  double micro_batch_tokens = 0;  ///< mean of a rank's micro-batches
  TokenMix mix;
  RunPlace place;
  NetworkOptions network;
};

/// A run with one zero_stage.
struct StageEstimate {
  ZeroStage stage;
  RecomputePolicy recompute;
  MemoryPlan memory;                  ///< of each rank
  bool fits = true;                   ///< as far as is known
  std::optional<SimulatedStep> step;  ///< an update, as is usual; none: not known
  Ranged<double> seconds = {};        ///< that it takes, where that is known
  std::string refused;                ///< why a run with it would be; empty: it would not

  bool can() const { return fits && refused.empty(); }
};

/// The same run with each zero_stage.
struct RanksEstimate {
  RankLayout layout;
  std::optional<Interconnect> net;
  ExchangeLane lane = ExchangeLane::own;
  double tokens = 0;  ///< of an update, on all ranks
  std::vector<StageEstimate> stages;

  Ranged<double> tokens_per_second(const StageEstimate& s) const {
    return s.seconds.map([this](double seconds) { return tokens / seconds; });
  }
  /// The fastest one that can be; one with less memory where two are as fast. Null where there is none, or no time.
  const StageEstimate* fastest() const;
};
/// Memory is exact, that of a run; time is a model: see docs/scaling.md. Of a config with several ranks.
RanksEstimate estimate_ranks(const ResolvedConfig& config, const RanksWork& work);

/// How ranks are connected that an exchange is between.
struct RankNets {
  Interconnect all, group, replicas;

  const Interconnect& of(Among among) const {
    return among == Among::all ? all : among == Among::group ? group : replicas;
  }
};
RankNets nets_of(const Interconnect& net, const Sharding& sharding);

/// Of calls that follow each other, on GPUs.
double seconds_of(const std::vector<ExchangeCall>& calls, const RankNets& nets, const NetworkOptions& network);
/// What the schedule of this run is made of. Its order: see simulate_step.
StepShape step_shape(const Config& config, const PlannedRun& run);
/// A GPU among others.
struct ConnectedGpu {
  DeviceSpeed speed;
  Interconnect net;
};
/// A run with this recompute policy on such GPUs.
StepCosts step_costs(const PlannedRun& run, const RanksWork& work, const ConnectedGpu& gpu);

}  // namespace qtrain
