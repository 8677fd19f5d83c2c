#include "plan/run_time.h"

#include <algorithm>
#include <array>

#include "plan/adapter_passes.h"
#include "plan/fp8_passes.h"

namespace qtrain {
namespace {

double gate_elements(const ModelConfig& c) {
  return c.experts ? static_cast<double>(c.experts->per_token * c.experts->intermediate_size)
                   : static_cast<double>(c.intermediate_size);
}

// Elements per token that a block's forward pass reads and writes: norms with residual sums, rotary embedding, the
// MLP's gate, and operands and results of GEMMs.
double block_elements(const ModelConfig& c) {
  const auto d = static_cast<double>(c.hidden_size);
  const auto q = static_cast<double>(c.heads * c.head_dim), kv = static_cast<double>(c.kv_heads * c.head_dim);
  const double f = gate_elements(c);
  const double norms = 2 * 4 * d, rotation = 2 * (q + kv), attention = 2 * q + 2 * kv, gate = 3 * f;
  const double gemms = (d + q + 2 * kv) + (q + d) + (d + 2 * f) + (f + d);
  return norms + rotation + attention + gate + gemms;
}

bool expands_weights(const PlannedRun& run) {
  return !run.model.quantized().empty() && run.choice.dense_copies == KeepCopies::no;
}

// The bytes of a quantized weight, with its scale.
double code_bytes(const PlannedRun& run) {
  const Quantization& how = *run.model.options().quantization;
  return how.fp8 || how.bnb.bits == BnbConfig::Bits::eight ? 1 : 0.5625;
}

// Per weight that is not dense, in one pass: it is expanded, unless fp8_passes counts what GEMMs in FP8 need.
double expansion_bytes(const PlannedRun& run, double element) {
  return expands_weights(run) && !run.model.options().multiplies_stored_fp8() ? code_bytes(run) + element : 0;
}

// The FLOPs in 16 bits that would take as long as what GEMMs in FP8 save.
double saved_flops(const Fp8Pass& pass, double rate) {
  return (1 - 1 / rate) * pass.flops;
}

/// The kernels of a block that are no GEMMs, in one pass over a micro-batch.
struct KernelsOfBlock {
  double forward_bytes = 0, backward_bytes = 0;    ///< per token
  double weight_bytes = 0;                         ///< for the expansion of quantized weights
  double forward_copied = 0, backward_copied = 0;  ///< for copies of weights with adapters
  double forward_launches = 0, backward_launches = 0;
};
// As counted by tests/emulator/launch_counts_test.cpp: norms and sums of their gradients, rotary embedding, attention,
// the gate and, unless GEMMs add them, residual sums. A linear layer has one GEMM in the forward pass and one per
// gradient, an adapter six more, of which those of the forward pass become a GEMM and a copy of the weights if they are
// in the GEMMs of a group. Two for gradients become two for each launch of a group if dy is read once, and a GEMM of dx
// with an adapter needs copies of A and of weights that are not expanded.
KernelsOfBlock kernels_of_block(const PlannedRun& run) {
  const ModelConfig& c = run.model.config();
  const auto element = static_cast<double>(size_of(run.model.options().activation_dtype));
  const double sums = c.joins_projections && c.residual_scale == 1 ? 0 : 2;
  const bool normed = c.qk_norm != QkNorm::none, frozen = run.model.options().base == Update::frozen;
  const auto bytes = [&](const ElementBytes& of) {
    return element / 2 *
           (of.width * static_cast<double>(c.hidden_size) +
            of.heads * static_cast<double>((c.heads + c.kv_heads) * c.head_dim) + of.gate * gate_elements(c));
  };
  double linears = 0, adapted = 0, expanded = 0;
  const LayerParams& layer = run.model.params().layers().front();
  for (const LinearParams& l : layer.linears) {
    linears += 1;
    adapted += l.a ? 1 : 0;
    expanded += expansion_bytes(run, element) > 0 ? 1 : 0;
  }
  const double weights = static_cast<double>(run.model.params().linear_elements()) / static_cast<double>(c.layers);
  const JoinedAdapters joined =
      joined_adapters(run.model, run.choice.adapter_gemms, {.layer = 0, .tokens = run.work.train.tokens});
  return {.forward_bytes = bytes(forward_bytes(normed)),
          .backward_bytes = bytes(backward_bytes(normed)),
          .weight_bytes = weights * expansion_bytes(run, element),
          .forward_copied = expands_weights(run) ? 0 : 2 * element * joined.weights,
          .backward_copied = expands_weights(run) ? 0 : 2 * element * joined.gradient_weights,
          .forward_launches = 5 + sums + linears + 2 * (adapted - joined.adapters + joined.groups) + expanded,
          .backward_launches = (frozen ? 7 : 11) + (frozen ? 1 : 2) * linears + 4 * adapted + expanded +
                               2 * (joined.launches_once - joined.adapters_once) +
                               (expands_weights(run) ? 0 : joined.gradient_groups)};
}

constexpr double kHeadLaunches = 12;

// Each pass writes and reads a dense copy of quantized weights, unless a copy is kept.
double weight_bytes(const PlannedRun& run, double element) {
  const auto weights = static_cast<double>(run.model.params().linear_elements() + run.model.params().expert_elements());
  return weights * (expands_weights(run) ? code_bytes(run) + 2 * element : element);
}

}  // namespace

double StepTime::seconds() const {
  if (serial) return std::max({computing + attention + memory + adapters + gaps, host, loading}) + update;
  return std::max({computing, memory, host, loading}) + adapters + update;
}

std::string_view StepTime::limit() const {
  const std::array<std::pair<double, std::string_view>, 8> parts{{{computing, "compute"},
                                                                  {attention, "attention"},
                                                                  {memory, "memory bandwidth"},
                                                                  {adapters, "the passes of adapters"},
                                                                  {gaps, "the launches"},
                                                                  {host, "the link to the host"},
                                                                  {loading, "data loading"},
                                                                  {update, "the update of the weights"}}};
  return std::ranges::max_element(parts)->second;
}

PassTime PassTime::times(double n) const {
  return {n * gemms, n * attention, n * elements, n * adapters, n * gaps};
}

PassTime& PassTime::operator+=(const PassTime& other) {
  gemms += other.gemms;
  attention += other.attention;
  elements += other.elements;
  adapters += other.adapters;
  gaps += other.gaps;
  return *this;
}

PassTimes pass_times(const PlannedRun& run, const TokenMix& mix, double tokens, const DeviceSpeed& speed) {
  const TrainingFlops flops = training_flops(run.model, mix, run.policy());
  const AdapterPasses adapters = adapter_passes(run.model, run.choice.adapter_gemms, run.work.train.tokens);
  const auto element = static_cast<double>(size_of(run.model.options().activation_dtype));
  const double of_adapters = tokens * element / (speed.kernels ? speed.kernels->skinny : speed.bandwidth);
  const double again = run.policy().whole_blocks() ? 1 : 0;
  const Fp8Passes fp8 = fp8_passes(run.model);
  PassTime forward{.gemms = tokens * (flops.forward - saved_flops(fp8.forward, fp8.rate)) / speed.flops,
                   .adapters = of_adapters * adapters.forward / flops.layers};
  PassTime backward{
      .gemms = tokens * (flops.backward - again * flops.forward - saved_flops(fp8.backward, fp8.rate)) / speed.flops,
      .adapters = of_adapters * adapters.backward / flops.layers};
  PassTime head{.gemms = tokens * flops.head / speed.flops, .adapters = of_adapters * adapters.head * mix.target_share};
  if (speed.kernels) {
    const KernelsOfBlock kernels = kernels_of_block(run);
    const AttentionSeconds& attention = speed.kernels->attention;
    forward.attention = tokens * flops.attention * attention.forward;
    forward.gemms -= tokens * flops.attention / speed.flops;
    backward.attention = tokens * 2 * flops.attention * attention.backward;
    backward.gemms -= tokens * 2 * flops.attention / speed.flops;
    forward.elements = (tokens * (kernels.forward_bytes + fp8.forward.bytes) + kernels.weight_bytes +
                        fp8.forward.weight_bytes + kernels.forward_copied) /
                       speed.bandwidth;
    backward.elements = (tokens * (kernels.backward_bytes + fp8.backward.bytes) + kernels.weight_bytes +
                         fp8.backward.weight_bytes + kernels.backward_copied) /
                        speed.bandwidth;
    forward.gaps = (kernels.forward_launches + fp8.forward.launches) * speed.kernels->gap_seconds;
    backward.gaps = (kernels.backward_launches + fp8.backward.launches) * speed.kernels->gap_seconds;
    const double logits = 3 * static_cast<double>(run.model.config().vocab_size) * element;
    head.elements = tokens * mix.target_share * logits / speed.bandwidth;
    head.gaps = kHeadLaunches * speed.kernels->gap_seconds;
  }
  backward += forward.times(again);
  const auto group = static_cast<double>(run.policy().group());
  return {.forward = forward,
          .backward = backward,
          .head = head,
          .inputs = forward.times(again * flops.layers * (group - 1) / group)};
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
  StepTime time{.host = from_host / kHostBandwidth,
                .loading = speed.loading ? tokens / *speed.loading : 0,
                .update = update.device / speed.bandwidth + update.host / kHostBandwidth};
  if (speed.kernels) {
    const PassTimes passes = pass_times(run, work.mix, work.micro_batch_tokens, speed);
    PassTime all = passes.head;
    for (const PassTime& pass : {passes.forward.times(layers), passes.backward.times(layers), passes.inputs})
      all += pass;
    all = all.times(work.micro_batches);
    time.serial = true;
    time.computing = all.gemms;
    time.attention = all.attention;
    time.memory = all.elements;
    time.adapters = all.adapters;
    time.gaps = all.gaps;
    return time;
  }
  const AdapterPasses adapters = adapter_passes(run.model, run.choice.adapter_gemms, run.work.train.tokens);
  const double adapted = adapters.forward * (1 + (policy.whole_blocks() ? again : 0)) + adapters.backward +
                         adapters.head * work.mix.target_share;
  const Fp8Passes fp8 = fp8_passes(run.model);
  const double saved =
      layers * (saved_flops(fp8.forward, fp8.rate) * (passes - 1) + saved_flops(fp8.backward, fp8.rate));
  time.computing = tokens * (flops.total() - saved) / speed.flops;
  time.memory = moved / speed.bandwidth;
  time.adapters = tokens * adapted * element / speed.bandwidth;
  return time;
}

Ranged<StepTime> step_time(const PlannedRun& run, const StepWork& work, const Ranged<DeviceSpeed>& speed) {
  return speed.map([&](const DeviceSpeed& s) { return step_time(run, work, s); });
}

}  // namespace qtrain
