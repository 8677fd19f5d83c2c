#include "train/run/run_model.h"

#include <utility>

#include "train/plan/compute.h"
#include "train/report/advice.h"
#include "train/setup/adapter_names.h"
#include "train/setup/vocabulary.h"

namespace qtrain {
namespace {

void describe_model(Transformer& model, Log& log) {
  std::int64_t trained = 0;
  for (const Param* p : model.trained()) trained += p->value.numel();
  log.info("model: {} with {:.1f} M parameters, {:.2f} M trained", model.config().model_type,
           static_cast<double>(model.params().elements()) / 1e6, static_cast<double>(trained) / 1e6);
  if (const auto& how = model.options().quantization)
    log.info("quantization: {:.1f} M of them in {}", static_cast<double>(model.params().linear_elements()) / 1e6,
             how->describe());
}

// Exchanges between ranks are not recorded. Divided models have them inside of passes and updates, ranks that share
// tokens inside of passes.
bool uses_graphs(const RunContext& run) {
  const RunSection& c = run.config.value.run;
  const bool divided = run.ranks.size() > 1 && c.zero_stage > 0, shared = run.sharing.size() > 1;
  return run.ctx.device().kind == DeviceKind::cuda && c.use_cuda_graphs.value_or(true) && !divided && !shared;
}

void describe_memory(const RunContext& run, const PlannedRun& planned, const MemoryPlan& memory) {
  run.log.info("memory: {:.0f} MiB ({}); recomputation: {}", static_cast<double>(memory.total()) / kMib, memory.table(),
               planned.policy().name());
  if (run.training().operand_copies == CopyChoice::always && memory.bytes_of("operand_copies") == 0)
    run.ignored.add("operand_copies", "it is about float32 weights in 16-bit GEMMs on a GPU");
  const bool copies = run.config.value.quant.dequantized_copy == CopyChoice::always;
  if (copies && planned.model.options().sharding.divides_weights())
    run.ignored.add("dequantized_copy", "with zero_stage 3 no rank keeps whole weights");
  if (planned.optimizer.pages == Pages::where_needed)
    run.log.info("optimizer state: {}", planned.optimizer.placement == Placement::pinned
                                            ? "in the host's memory, copies run beside the work"
                                            : "on the device, which has room for it");
  if (uses_graphs(run))
    run.log.info("CUDA graphs: on, for the {} sizes of micro-batches that were used last", kKeptGraphs);
}

// The memory of the model first, then that of the optimizer and of everything else that computes.
void commit(const RunContext& run, const PlannedRun& planned, RunModel& m) {
  Ctx& ctx = run.ctx;
  Transformer& model = *m.setup.model;
  model.commit(planned.choice, planned.work.passes(model.options().context));
  if (model.options().context.is_shared()) {
    m.keys = std::make_unique<RankKeys>(run.sharing);
    model.set_key_exchange(*m.keys);
  }
  m.optimizer = std::make_unique<Optimizer>(ctx, make_rule(optimizer_options(run.training())), model.trained(),
                                            planned.optimizer.placement);
  m.optimizer->allocate(ctx);
  ops::reserve(ctx, model.plan().gemm_memory(model.copies().operands()));
  m.step =
      std::make_unique<TrainStep>(ctx, TrainStep::Parts{.model = model, .optimizer = *m.optimizer, .ranks = run.ranks},
                                  TrainStep::Options{.max_tokens = planned.work.train.tokens,
                                                     .graphs = uses_graphs(run) ? kKeptGraphs : 0,
                                                     .reduction = planned.reduction});
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
  require_optimizer(c, run.ctx.device());
  ModelSetup setup = set_up_model(run.ctx, training_request(c, run.ranks.rank(), run.ranks.size()));
  if (run.ranks.size() == 1 && c.run.zero_stage > 0) run.ignored.add("zero_stage", "there is one rank");
  advice_on_weights(setup);
  const Transformer& model = *setup.model;
  if (setup.adapter) check_adapter_keys(run.config, *model.options().lora, model.config());
  require_vocabulary(c, data.train, Split::train);
  require_vocabulary(c, data.evaluation, Split::evaluation);
  for (const std::string& advice : model_advice(c, model.config())) run.log.warn("{}", advice);
  describe_model(*setup.model, run.log);
  return setup;
}

RunModel allocate_run_model(const RunContext& run, const RunData& data, ModelSetup declared) {
  const TrainingSection& t = run.training();
  const auto target = [&] { return target_here(run.ctx.device(), run.ctx.pool().size()); };
  RunModel m{.keys = {}, .setup = std::move(declared), .memory = {}};
  PlannedRun planned =
      planned_run(run.config.value, *m.setup.model, workload_of(t, data.train, data.evaluation), target());
  planned.ranks = run.ranks.size();
  m.memory = plan_run(planned, t.gradient_checkpointing.policy);
  describe_memory(run, planned, m.memory);
  try {
    commit(run, planned, m);
    if (planned.work.evaluation)
      m.evaluator = std::make_unique<Evaluator>(run.ctx.device(), *data.evaluation_loader, run.ranks,
                                                m.setup.model->options().context);
  } catch (const Error& e) {  // others took what was there
    if (e.kind() != ErrorKind::memory) throw;
    planned.target = target();
    if (fits(memory_plan(planned), planned.target)) throw;  // memory of the host
    fail(ErrorKind::memory, does_not_fit(planned));
  }
  m.optimizer->state().initialize(run.ctx, 0);
  return m;
}

}  // namespace qtrain
