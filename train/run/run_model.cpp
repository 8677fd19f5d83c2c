#include "train/run/run_model.h"

#include <algorithm>
#include <utility>

#include "report/advice.h"
#include "train/ranks/gradient_buckets.h"
#include "train/setup/adapter_names.h"
#include "train/setup/compute.h"
#include "train/setup/vocabulary.h"

namespace qtrain {
namespace {

void describe_model(Transformer& model, Log& log) {
  std::int64_t trained = 0;
  for (const Param* p : model.trained()) trained += p->value.numel();
  log.info("model: {} with {:.1f} M parameters, {:.2f} M trained", model.config().model_type,
           static_cast<double>(model.params().elements()) / 1e6, static_cast<double>(trained) / 1e6);
  if (const auto& how = model.options().quantization)
    log.info("quantization: {:.1f} M of the parameters in {}",
             static_cast<double>(model.params().linear_elements()) / 1e6, how->describe());
}

// Where units are gathered or reduced within a pass, the pass is recorded in parts, and offloaded block inputs would
// cross from one part to another. Key exchanges of context parallelism fall in the middle of a part.
bool uses_graphs(const RunContext& run, const PlannedRun& planned) {
  const TransformerOptions& o = planned.model.options();
  const bool wanted = run.config.value.run.use_cuda_graphs.value_or(true);
  const bool in_parts = planned.reduction.beside || o.sharding.divides_gradients();
  const bool travels = in_parts && run.training().activation_offloading;
  return run.ctx.device().kind == DeviceKind::cuda && wanted && !travels && !o.context.is_shared();
}

// The first micro-batch of an update needs its own graph because it stores gradients, and the last one if only it
// exchanges them.
std::size_t kept_graphs(const RunContext& run, const PlannedRun& planned) {
  if (!uses_graphs(run, planned)) return 0;
  const Sharding& sharding = planned.model.options().sharding;
  const bool first = run.training().gradient_accumulation_steps > 1 && !sharding.divides_trained();
  const bool last = planned.reduction.beside && !sharding.divides_gradients();
  return kKeptGraphs * (1 + (first ? 1U : 0U) + (last ? 1U : 0U));
}

void describe_memory(const RunContext& run, const PlannedRun& planned, const MemoryPlan& memory) {
  run.log.info("memory: {:.0f} MiB ({}); recomputation: {}", static_cast<double>(memory.total()) / kMib, memory.table(),
               planned.policy().name());
  if (run.training().operand_copies == CopyChoice::always && memory.bytes_of("operand_copies") == 0)
    run.ignored.add("operand_copies", "it applies only to float32 weights in 16-bit GEMMs on a GPU");
  const bool copies = run.config.value.quant.dequantized_copy == CopyChoice::always;
  if (copies && planned.model.options().sharding.divides_weights())
    run.ignored.add("dequantized_copy", "zero_stage 3 and weight_offload do not keep unsharded weights");
  if (planned.optimizer.pages == Pages::where_needed)
    run.log.info("optimizer state: {}", planned.optimizer.placement == Placement::pinned
                                            ? "in host memory, copied while the GPU computes"
                                            : "on the device, where it fits");
  if (uses_graphs(run, planned))
    run.log.info("CUDA graphs: on, kept for the {} most recently used micro-batch sizes", kKeptGraphs);
}

// Where each rank chooses by its free memory, all adopt the policy of the tightest one: recomputation may gather
// weights again, which has to match on all ranks.
std::string agreed_policy(const RunContext& run, const PlannedRun& planned) {
  const std::string& wanted = run.training().gradient_checkpointing.policy;
  if (wanted != Recompute::kAuto) return wanted;
  PlannedRun mine = planned;
  const std::vector<RecomputePolicy> policies = policies_of(mine);
  std::vector<std::int64_t> number{std::ranges::find(policies, settle_policy(mine, wanted)) - policies.begin()};
  run.ranks.all_reduce(run.ctx, view_of(std::span(number), {1}), Reduction::max);
  return policies.at(static_cast<std::size_t>(number.front())).name();
}

// The configured bucket size, or one that suits the measured link.
ReductionOptions reduction_of(const RunContext& run, const PlannedRun& planned) {
  ReductionOptions reduction = planned.reduction;
  const bool asked = run.config.value.run.ddp_bucket_cap_mb.has_value();
  const bool whole = !planned.model.options().sharding.divides_trained();
  // NCCL's order of addition depends on the size, so measuring again would change the bits of a resumed run.
  const bool keeps_bits = run.ctx.device().kind == DeviceKind::cpu;
  if (asked || !whole || !reduction.beside || run.ranks.size() == 1 || !keeps_bits) return reduction;
  const LinkTimes times = time_link(run.ctx, run.ranks);
  reduction.bucket_bytes = bucket_bytes(times);
  run.log.info(
      "adding gradients across ranks in buckets of {} KiB: an exchange of {} KiB takes {:.0f} us, one of {} bytes "
      "{:.0f} us",
      reduction.bucket_bytes >> 10, times.large_bytes >> 10, times.large_seconds * 1e6, times.small_bytes,
      times.small_seconds * 1e6);
  return reduction;
}

// transformers ignores label smoothing if there is another loss, too.
ops::TargetLoss target_loss(const TrainingSection& t) {
  if (t.loss_type == LossType::dft) return {.weight = ops::TargetWeight::probability};
  return {.smoothing = t.label_smoothing_factor};
}

// Allocates the model first, then the optimizer and everything else that computes.
void commit(const RunContext& run, const PlannedRun& planned, RunModel& m) {
  Ctx& ctx = run.ctx;
  Transformer& model = *m.setup.model;
  m.runner = std::make_unique<Runner>(model, Execution{planned.choice, planned.work.passes(model.options().context)});
  if (model.options().context.is_shared()) {
    m.keys = std::make_unique<RankKeys>(run.sharing);
    m.runner->set_key_exchange(*m.keys);
  }
  m.optimizer = std::make_unique<Optimizer>(ctx, make_rule(optimizer_options(run.training())), model.trained(),
                                            planned.optimizer.placement);
  m.optimizer->allocate(ctx);
  ops::reserve(ctx, m.runner->plan().gemm_memory(m.runner->copies().operands()));
  m.step = std::make_unique<TrainStep>(
      ctx, TrainStep::Parts{.runner = *m.runner, .optimizer = *m.optimizer, .ranks = *m.ranks},
      TrainStep::Options{.max_tokens = planned.work.train.tokens,
                         .graphs = kept_graphs(run, planned),
                         .reduction = reduction_of(run, planned),
                         .loss = target_loss(run.training()),
                         .noise = planned.work.noise});
}

}  // namespace

double flos_per_token(Transformer& model) {
  std::int64_t weights = model.params().elements() - model.config().vocab_size * model.config().hidden_size;
  for (const Param& p : model.adapter().all())
    if (!p.spec.name.ends_with("embed_tokens.weight")) weights += p.value.numel();
  return 6.0 * static_cast<double>(weights);
}

ModelSetup declare_run_model(const RunContext& run, const RunData& data) {
  const Config& c = run.config.value;
  require_features(c, run.ctx.device());
  ModelSetup setup = set_up_model(run.ctx, training_request(c, run.ranks.rank(), run.ranks.size()));
  if (run.ranks.size() == 1 && c.run.zero_stage > 0) run.ignored.add("zero_stage", "the run has a single rank");
  advice_on_weights(setup);
  const Transformer& model = *setup.model;
  if (setup.adapter) check_adapter_keys(run.config, *model.options().lora, model.config());
  require_vocabulary(c, data.train, Split::train);
  require_vocabulary(c, data.evaluation, Split::evaluation);
  for (const std::string& advice : model_advice(c, model.config())) run.log.warn("{}", advice);
  describe_model(*setup.model, run.log);
  const bool asked = run.ranks.size() == 1 || c.run.zero_stage == static_cast<int>(model.options().sharding.stage);
  if (!asked)
    run.log.info("zero_stage: {}, required by {}", static_cast<int>(model.options().sharding.stage),
                 model.options().sharding.on_host ? "weight_offload" : "optim " + c.training.optim);
  return setup;
}

RunModel allocate_run_model(const RunContext& run, const RunData& data, ModelSetup declared) {
  const TrainingSection& t = run.training();
  const auto target = [&] { return target_here(run.ctx.device(), run.ctx.pool().size()); };
  // NCCL takes memory for each communicator, so create them before planning with the free memory.
  auto ranks = std::make_unique<ShardRanks>(run.ranks, declared.model->options().sharding);
  RunModel m{.keys = {}, .ranks = std::move(ranks), .setup = std::move(declared), .memory = {}};
  m.samples = load_sample_prompts(run.config.value, m.setup.model->config());
  Workload work = workload_of(t, data.train, data.evaluation);
  work.samples = sample_work(m.samples, m.setup.model->config());
  PlannedRun planned = planned_run(run.config.value, *m.setup.model, work, target());
  planned.ranks = run.ranks.size();
  m.memory = plan_run(planned, agreed_policy(run, planned));
  describe_memory(run, planned, m.memory);
  try {
    commit(run, planned, m);
    if (planned.work.evaluation)
      m.evaluator = std::make_unique<Evaluator>(
          run.ctx.device(), *data.evaluation_loader, run.ranks,
          EvaluationOptions{.share = m.setup.model->options().context, .loss = target_loss(run.training())});
  } catch (const Error& e) {  // another process took the memory in the meantime
    if (e.kind() != ErrorKind::memory) throw;
    planned.target = target();
    if (fits(memory_plan(planned), planned.target)) throw;  // host memory ran out
    fail(ErrorKind::memory, does_not_fit(planned));
  }
  m.optimizer->state().initialize(run.ctx, 0);
  return m;
}

}  // namespace qtrain
