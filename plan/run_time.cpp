#include "plan/run_time.h"

#include <algorithm>
#include <array>

#include "plan/adapter_passes.h"

namespace qtrain {
namespace {

// Elements per token that a block's forward pass reads and writes: norms with residual sums, rotary embedding, the
// MLP's gate, and operands and results of GEMMs.
double block_elements(const ModelConfig& c) {
  const auto d = static_cast<double>(c.hidden_size);
  const auto q = static_cast<double>(c.heads * c.head_dim), kv = static_cast<double>(c.kv_heads * c.head_dim);
  const double f = c.experts ? static_cast<double>(c.experts->per_token * c.experts->intermediate_size)
                             : static_cast<double>(c.intermediate_size);
  const double norms = 2 * 4 * d, rotation = 2 * (q + kv), attention = 2 * q + 2 * kv, gate = 3 * f;
  const double gemms = (d + q + 2 * kv) + (q + d) + (d + 2 * f) + (f + d);
  return norms + rotation + attention + gate + gemms;
}

// Each pass writes and reads a dense copy of quantized weights, unless a copy is kept.
double weight_bytes(const PlannedRun& run, double element) {
  const auto weights = static_cast<double>(run.model.params().linear_elements() + run.model.params().expert_elements());
  const bool coded = !run.model.quantized().empty() && run.choice.dense_copies == KeepCopies::no;
  constexpr double kCode = 0.5625;
  return weights * (coded ? kCode + 2 * element : element);
}

}  // namespace

double StepTime::seconds() const {
  return std::max({computing, memory, host, loading}) + adapters + update;
}

std::string_view StepTime::limit() const {
  const std::array<std::pair<double, std::string_view>, 6> parts{{{computing, "compute"},
                                                                  {memory, "memory bandwidth"},
                                                                  {adapters, "the passes of adapters"},
                                                                  {host, "the link to the host"},
                                                                  {loading, "data loading"},
                                                                  {update, "the update of the weights"}}};
  return std::ranges::max_element(parts)->second;
}

UpdateTraffic update_traffic(const PlannedRun& run) {
  double elements = 0;
  for (const Param* p : run.model.trained()) elements += static_cast<double>(p->own.count());
  const double state = 2 * static_cast<double>(run.optimizer.memory.state), weights = 2 * elements * sizeof(float);
  UpdateTraffic bytes{.device = elements * sizeof(float)};
  (run.optimizer.placement == Placement::device ? bytes.device : bytes.host) += state;
  (run.model.options().sharding.on_host ? bytes.host : bytes.device) += weights;
  return bytes;
}

StepWork step_work(const Dataset& rows, const TrainingSection& t) {
  const DatasetStatistics& s = rows.statistics();
  const auto tokens = static_cast<double>(s.tokens),
             count = static_cast<double>(std::max<std::int64_t>(rows.size(), 1));
  return {.mix = {.context = tokens / static_cast<double>(std::max<std::int64_t>(s.source_rows, 1)),
                  .target_share = static_cast<double>(s.target_tokens) / std::max(tokens, 1.0)},
          .micro_batch_tokens = tokens / count * static_cast<double>(t.per_device_train_batch_size),
          .micro_batches = static_cast<double>(t.gradient_accumulation_steps)};
}

StepWork rebatched(StepWork work, const TrainingSection& t) {
  const double tokens = work.tokens();
  work.micro_batches = static_cast<double>(t.gradient_accumulation_steps);
  work.micro_batch_tokens = tokens / work.micro_batches;
  return work;
}

StepTime step_time(const PlannedRun& run, const StepWork& work, const DeviceSpeed& speed) {
  const ModelConfig& c = run.model.config();
  const RecomputePolicy& policy = run.policy();
  const TrainingFlops flops = training_flops(run.model, work.mix, policy);
  const auto element = static_cast<double>(size_of(run.model.options().activation_dtype));
  const bool frozen = run.model.options().base == Update::frozen;
  const double layers = static_cast<double>(c.layers), tokens = work.tokens();
  const double again = policy.whole_blocks()
                           ? 1 + static_cast<double>(policy.group() - 1) / static_cast<double>(policy.group())
                       : policy.kind() == RecomputePolicy::Kind::selective ? 0.3
                                                                           : 0;
  const double passes = 2 + (policy.whole_blocks() ? again : 0);
  const auto trained = frozen ? 0.0 : static_cast<double>(run.model.params().linear_elements());
  const double gradients = 2 * sizeof(float) * trained;
  const double head = 5 * static_cast<double>(c.vocab_size) * element * work.mix.target_share;
  const double moved = tokens * (layers * block_elements(c) * element * (3 + again) + head) +
                       work.micro_batches * (passes * weight_bytes(run, element) + gradients);
  double from_host = 0;
  if (run.inputs == BlockInputs::host) from_host += 2 * tokens * layers * static_cast<double>(c.hidden_size) * element;
  if (run.model.options().sharding.on_host) {
    const double held = weight_bytes(run, sizeof(float));
    from_host += work.micro_batches * (2 + (policy.group() > 1 ? 1 : 0)) * held;
  }
  const UpdateTraffic update = update_traffic(run);
  const AdapterPasses adapters = adapter_passes(run.model);
  const double adapted = adapters.forward * (1 + (policy.whole_blocks() ? again : 0)) + adapters.backward +
                         adapters.head * work.mix.target_share;
  return {.computing = tokens * flops.total() / speed.flops,
          .memory = moved / speed.bandwidth,
          .host = from_host / kHostBandwidth,
          .loading = speed.loading ? tokens / *speed.loading : 0,
          .adapters = tokens * adapted * element / speed.bandwidth,
          .update = update.device / speed.bandwidth + update.host / kHostBandwidth};
}

Ranged<StepTime> step_time(const PlannedRun& run, const StepWork& work, const Ranged<DeviceSpeed>& speed) {
  return speed.map([&](const DeviceSpeed& s) { return step_time(run, work, s); });
}

}  // namespace qtrain
