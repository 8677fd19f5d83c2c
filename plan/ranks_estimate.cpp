#include "plan/ranks_estimate.h"

#include <algorithm>

#include "plan/run_time.h"
#include "train/ranks/gradient_squares.h"
#include "train/setup/model_setup.h"

namespace qtrain {
namespace {

double update_seconds(const PlannedRun& run, const GpuModel& gpu) {
  constexpr double kGiga = 1e9;
  const UpdateTraffic bytes = update_traffic(run);
  return bytes.host / kHostBandwidth + bytes.device / (gpu.bandwidth * kGiga);
}

// Communication of attention in a block if ranks share tokens: keys and values are gathered in the forward pass and
// again in the backward pass, and their gradients are reduced.
struct KeySeconds {
  double gather = 0, reduce = 0;
};
KeySeconds key_seconds(const PlannedRun& run, const RanksWork& work, const Interconnect& net) {
  const TransformerOptions& options = run.model.options();
  if (!options.context.is_shared()) return {};
  const int ranks = options.context.ranks;
  const Interconnect group = within_group(net, ranks);
  const auto& [heads, head_dim] = run.model.layers().front().key_value;
  const double bytes = work.micro_batch_tokens * ranks * static_cast<double>(heads * head_dim) *
                       static_cast<double>(size_of(options.activation_dtype)) / ContextShare::kPieces;
  const auto seconds = [&](Exchange what) {  // each piece of keys and values, and the comparison before it
    const std::vector<ExchangeCall> calls(2 * ContextShare::kPieces, {.what = what, .name = "", .bytes = bytes});
    return seconds_of(calls, {.all = group, .group = group, .replicas = group}, work.network);
  };
  return {.gather = seconds(Exchange::all_gather), .reduce = seconds(Exchange::reduce)};
}

// All-reduces of the losses and of the squared gradients.
std::vector<ExchangeCall> sums_of_update(const PlannedRun& run) {
  const Sharding& sharding = run.model.options().sharding;
  std::vector<ExchangeCall> calls(2, {.what = Exchange::all_reduce, .name = "", .bytes = sizeof(double)});
  if (GradientSquares::replicates(run.target.device, run.reduction.order, sharding.ranks, sharding.replicas))
    calls.push_back({.what = Exchange::broadcast, .name = "", .bytes = sizeof(double), .among = Among::replicas});
  return calls;
}

StageEstimate estimate_stage(const ResolvedConfig& resolved, const RanksWork& work,
                             const std::optional<Interconnect>& net) {
  const Config& config = resolved.value;
  const ModelSetup setup = set_up_model(work.compute, training_request(config));
  PlannedRun run = planned_run(config, *setup.model, work.batches, work.target);
  const RecomputePolicy policy = settle_policy(run, config.training.gradient_checkpointing.policy);
  choose_copies(run, policy);
  run.choice.recompute = {policy, run.inputs};
  StageEstimate e{
      .stage = static_cast<ZeroStage>(config.run.zero_stage), .recompute = policy, .memory = memory_plan(run)};
  e.fits = fits(e.memory, work.target);
  if (const auto refused = unsupported(resolved, work.place); !refused.empty()) e.refused = refused.front().cause;
  if (!net || !work.speed) return e;
  StepShape shape = step_shape(config, run);
  if (work.network.lane) shape.lane = *work.network.lane;
  const Ranged<SimulatedStep> steps = work.speed->map([&](const DeviceSpeed& speed) {
    return simulate_step(shape, step_costs(run, work, {.speed = speed, .net = *net}));
  });
  e.step = steps.usual;
  e.seconds = steps.map([](const SimulatedStep& s) { return s.seconds; });
  return e;
}

}  // namespace

double seconds_of(const std::vector<ExchangeCall>& calls, const RankNets& nets, const NetworkOptions& network) {
  double seconds = 0;
  for (const ExchangeCall& call : calls)
    seconds += exchange_seconds(nets.of(call.among), network.collectives, call.what, call.bytes);
  return seconds;
}

RankNets nets_of(const Interconnect& net, const Sharding& sharding) {
  if (sharding.replicas == 1) return {.all = net, .group = net, .replicas = net};
  return {.all = net, .group = within_group(net, sharding.ranks), .replicas = over_groups(net, sharding.ranks)};
}

StepShape step_shape(const Config& config, const PlannedRun& run) {
  const Sharding& sharding = run.model.options().sharding;
  return {.stage = sharding.stage,
          .buffers = sharding.buffers,
          .order = run.reduction.order,
          .beside = run.reduction.beside,
          .micro_batches = config.training.gradient_accumulation_steps,
          .group = run.policy().group(),
          .lane = exchange_lane(run.target.device.kind, run.reduction.beside),
          .gathers_again = !run.model.params().adapter().norms().all().empty(),
          .replicates = sharding.replicas > 1 && !sharding.replicas_agree};
}

StepCosts step_costs(const PlannedRun& run, const RanksWork& work, const ConnectedGpu& gpu) {
  const PassTimes passes = pass_times(run, work.mix, work.micro_batch_tokens, gpu.speed);
  const StepExchanges exchanges = step_exchanges(run.model, run.reduction, run.ranks);
  const RankNets nets = nets_of(gpu.net, run.model.options().sharding);
  const auto seconds = [&](const std::vector<ExchangeCall>& calls) { return seconds_of(calls, nets, work.network); };
  StepCosts costs{.head = passes.head.seconds(),
                  .update = update_seconds(run, *work.gpu),
                  .micro_batch_sum = seconds(exchanges.micro_batch),
                  .step_sum = seconds(exchanges.step),
                  .norm = seconds(sums_of_update(run))};
  const KeySeconds keys = key_seconds(run, work, gpu.net);
  const double again = run.policy().whole_blocks() ? keys.gather : 0;
  costs.blocks.assign(static_cast<std::size_t>(run.model.config().layers),
                      {.forward = passes.forward.seconds() + keys.gather,
                       .backward = passes.backward.seconds() + keys.gather + keys.reduce + again});
  for (const StepExchanges::Unit& u : exchanges.units)
    costs.units.push_back({.gather = u.from_host / kHostBandwidth + seconds(u.gather),
                           .reduce = seconds(u.reduce),
                           .settle = seconds(u.settle),
                           .replicate = seconds(u.replicate)});
  return costs;
}

const StageEstimate* RanksEstimate::fastest() const {
  const StageEstimate* best = nullptr;
  for (const StageEstimate& s : stages)
    if (s.can() && s.step && (!best || s.step->seconds <= best->step->seconds)) best = &s;
  return best;
}

RanksEstimate estimate_ranks(const ResolvedConfig& resolved, const RanksWork& work) {
  const Config& config = resolved.value;
  RanksEstimate e{
      .layout = {.nodes = static_cast<int>(config.run.nnodes), .ranks_per_node = static_cast<int>(config.run.nproc)}};
  e.lane = work.network.lane.value_or(
      exchange_lane(work.target.device.kind, config.run.overlap_comm && config.run.context_parallel_size == 1));
  if (work.gpu) e.net = interconnect_of(*work.gpu, e.layout, work.network.gbps);
  e.tokens =
      work.micro_batch_tokens * static_cast<double>(config.training.gradient_accumulation_steps * e.layout.ranks());
  const bool on_host = config.training.weight_offload && work.target.device.kind == DeviceKind::cuda;
  ResolvedConfig staged = resolved;
  for (const ZeroStage stage : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
    if (on_host && stage != ZeroStage::weights) continue;
    staged.value.run.zero_stage = static_cast<std::int64_t>(stage);
    e.stages.push_back(estimate_stage(staged, work, e.net));
  }
  return e;
}

}  // namespace qtrain
