#include "train/plan/ranks_estimate.h"

#include <algorithm>

#include "train/setup/model_setup.h"

namespace qtrain {
namespace {

// Weights and gradients are read, weights written, and the state both; from the host where it is kept there.
double update_seconds(const PlannedRun& run, const GpuModel& gpu) {
  constexpr double kGiga = 1e9, kHostBandwidth = 24e9;
  double elements = 0;
  for (const Param* p : run.model.trained()) elements += static_cast<double>(p->own.count());
  const double state = 2 * static_cast<double>(run.optimizer.memory.state), weights = 3 * elements * sizeof(float);
  const bool on_host = run.optimizer.placement != Placement::device;
  return on_host ? state / kHostBandwidth + weights / (gpu.bandwidth * kGiga)
                 : (state + weights) / (gpu.bandwidth * kGiga);
}

StageEstimate estimate_stage(const Config& config, const RanksWork& work, const std::optional<Interconnect>& net) {
  const ModelSetup setup = set_up_model(work.compute, training_request(config));
  PlannedRun run = planned_run(config, *setup.model, work.batches, work.target);
  const RecomputePolicy policy = settle_policy(run, config.training.gradient_checkpointing.policy);
  choose_copies(run, policy);
  run.choice.recompute = {policy, run.inputs};
  StageEstimate e{
      .stage = static_cast<ZeroStage>(config.run.zero_stage), .recompute = policy, .memory = memory_plan(run)};
  e.fits = fits(e.memory, work.target);
  if (net && work.flops_per_second) e.step = simulate_step(step_shape(config, policy), step_costs(run, work, *net));
  return e;
}

}  // namespace

double seconds_of(const std::vector<ExchangeCall>& calls, const Interconnect& net, const NetworkOptions& network) {
  double seconds = 0;
  for (const ExchangeCall& call : calls) seconds += exchange_seconds(net, network.collectives, call.what, call.bytes);
  return seconds;
}

StepShape step_shape(const Config& config, const RecomputePolicy& policy) {
  return {.stage = static_cast<ZeroStage>(config.run.zero_stage),
          .buffers = config.run.overlap_comm ? 2 : 1,
          .order = config.run.deterministic_reduce ? ReductionOrder::micro_batches : ReductionOrder::ranks,
          .micro_batches = config.training.gradient_accumulation_steps,
          .group = policy.group()};
}

StepCosts step_costs(const PlannedRun& run, const RanksWork& work, const Interconnect& net) {
  const TrainingFlops flops = training_flops(run.model, work.mix, run.policy());
  const double token = work.micro_batch_tokens / *work.flops_per_second;  // seconds for an operation of each token
  const StepExchanges exchanges = step_exchanges(run.model, run.reduction, run.ranks);
  const ExchangeCall numbers{.what = Exchange::all_reduce, .name = "", .bytes = sizeof(double)};
  const auto seconds = [&](const std::vector<ExchangeCall>& calls) { return seconds_of(calls, net, work.network); };
  StepCosts costs{.head = flops.head * token,
                  .update = update_seconds(run, *work.gpu),
                  .micro_batch_sum = seconds(exchanges.micro_batch),
                  .step_sum = seconds(exchanges.step),
                  .norm = seconds({numbers, numbers})};
  costs.blocks.assign(static_cast<std::size_t>(flops.layers),
                      {.forward = flops.forward * token, .backward = flops.backward * token});
  for (const StepExchanges::Unit& u : exchanges.units)
    costs.units.push_back({.gather = seconds(u.gather), .reduce = seconds(u.reduce)});
  return costs;
}

const StageEstimate* RanksEstimate::fastest() const {
  const StageEstimate* best = nullptr;
  for (const StageEstimate& s : stages)
    if (s.fits && s.step && (!best || s.step->seconds <= best->step->seconds)) best = &s;
  return best;
}

RanksEstimate estimate_ranks(const Config& config, const RanksWork& work) {
  RanksEstimate e{
      .layout = {.nodes = static_cast<int>(config.run.nnodes), .ranks_per_node = static_cast<int>(config.run.nproc)}};
  if (work.gpu) e.net = interconnect_of(*work.gpu, e.layout, work.network.gbps);
  e.tokens =
      work.micro_batch_tokens * static_cast<double>(config.training.gradient_accumulation_steps * e.layout.ranks());
  Config staged = config;
  for (const ZeroStage stage : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
    staged.run.zero_stage = static_cast<std::int64_t>(stage);
    e.stages.push_back(estimate_stage(staged, work, e.net));
  }
  return e;
}

}  // namespace qtrain
