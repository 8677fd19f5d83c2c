#include "plan/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "core/plural.h"
#include "model/recompute.h"
#include "plan/adapter_start.h"
#include "train/setup/adapter_names.h"
#include "train/setup/compute.h"
#include "train/setup/model_setup.h"
#include "train/setup/prepared_data.h"
#include "train/setup/step_plan.h"
#include "train/setup/vocabulary.h"

namespace qtrain {
namespace {

constexpr int kUnknownGpu = 9;  // compute capability assumed for it
constexpr double kFull = 0.9;   // fraction of the memory above which there is little room

struct SplitRows {
  Dataset train, evaluation;
};

/// Where the run computes; does not query a device that need not be installed.
struct Place {
  ComputePlan compute;
  TargetDevice target;
};

Place place_of(const Config& config, const EstimateOptions& options, int threads) {
  const ComputeChoice choice = compute_choice(config);
  if (const GpuModel* gpu = options.gpu) {
    ComputePlan compute = plan_compute_on_gpu(choice);
    compute.major = gpu->major;
    require_kernels(*gpu);
    require_precision(compute.matmul, gpu->name, gpu->major);
    require_features(config, GpuFeatures{.name = gpu->name, .major = gpu->major, .minor = gpu->minor});
    return {compute, target_gpu(gpu->name, gpu->major, usable_memory(*gpu))};
  }
  if (choice.device == "cuda" && !cuda_problem().empty())
    return {plan_compute_on_gpu(choice), target_gpu("a GPU that is not installed", kUnknownGpu, 0)};
  const ComputePlan compute = plan_compute(choice);
  require_features(config, compute.device);
  return {compute, target_here(compute.device, threads)};
}

SplitRows read_splits(const Config& config, DataPreparation&& preparation) {
  SplitRows rows{preparation.rows(Split::train), preparation.rows(Split::evaluation)};
  require_vocabulary(config, rows.train, Split::train);
  require_vocabulary(config, rows.evaluation, Split::evaluation);
  return rows;
}

/// Lengths of the documents and micro-batches of a run.
struct Course {
  TokenMix mix;
  double micro_batch_tokens = 0;  ///< mean of a rank's micro-batches

  StepWork step(const TrainingSection& t) const {
    return {.mix = mix,
            .micro_batch_tokens = micro_batch_tokens,
            .micro_batches = static_cast<double>(t.gradient_accumulation_steps)};
  }
};

Course follow_data(Estimate& e, const Config& config, const SplitRows& rows) {
  const TrainingSection& t = config.training;
  const StepPlan plan = make_step_plan(config, rows.train);
  const DatasetStatistics& s = rows.train.statistics();
  const auto tokens = static_cast<double>(s.tokens);
  e.from_data = true;
  e.work = workload_of(t, rows.train, rows.evaluation);
  e.steps = plan.max_steps;
  e.tokens = tokens * plan.epochs_after(plan.max_steps);
  return {.mix = {.context = tokens / static_cast<double>(std::max<std::int64_t>(s.source_rows, 1)),
                  .target_share = static_cast<double>(s.target_tokens) / std::max(tokens, 1.0)},
          .micro_batch_tokens = tokens / static_cast<double>(plan.batches * e.ranks)};
}

Course follow_limits(Estimate& e, const Config& config, std::int64_t longest) {
  const TrainingSection& t = config.training;
  e.work = longest_workload(config, longest);
  if (t.max_steps > 0) {
    e.steps = t.max_steps;
    e.tokens = static_cast<double>(t.max_steps * t.gradient_accumulation_steps * e.work.train.tokens) *
               config.run.data_ranks();
  }
  return {.mix = {.context = static_cast<double>(longest)},
          .micro_batch_tokens = static_cast<double>(e.work.train.tokens) / e.sharing};
}

// Null for a processor or an unknown GPU.
const GpuModel* gpu_of(const Place& place, const EstimateOptions& options) {
  if (options.gpu || place.compute.device.kind == DeviceKind::cpu) return options.gpu;
  return find_gpu(place.target.name);
}

std::optional<Ranged<DeviceSpeed>> speed_of(const Place& place, const EstimateOptions& options,
                                            const ComputedThere& computed) {
  if (place.compute.device.kind == DeviceKind::cpu) return measured_speed(computed.matmul, computed.threads);
  const GpuModel* gpu = gpu_of(place, options);
  if (!gpu) return {};
  return published_speed(*gpu, computed.matmul, sheet_shares(computed.hidden_size, options.mfu));
}

bool can_multiply(const GpuModel& gpu, const Config& config, MatmulPrecision matmul) {
  try {
    require_kernels(gpu);
    require_precision(matmul, gpu.name, gpu.major);
    require_features(config, GpuFeatures{.name = gpu.name, .major = gpu.major, .minor = gpu.minor});
    return true;
  } catch (const Error&) {  // its message is meant for a run on that GPU
    return false;
  }
}

/// The run to predict on each GPU.
struct ComparedRun {
  StepWork step;
  std::optional<double> mfu;
};

/// Whether GPU models can do the run, by the memory plan it would have there.
class GpuComparison {
 public:
  GpuComparison(const Config& config, const Estimate& e, const ComparedRun& compared)
      : config_(config), e_(e), compared_(compared) {}

  GpuVerdict on(const GpuModel& gpu) {
    const Prepared& p = prepared_for(gpu);
    PlannedRun run = planned_run(config_, *p.setup.model, e_.work, target_gpu(gpu.name, gpu.major, usable_memory(gpu)));
    run.choice = p.choice;
    run.choice.recompute = {settle_policy(run, config_.training.gradient_checkpointing.policy), run.inputs};
    const MemoryPlan plan = memory_plan(run);
    choose_copies(run, run.policy());
    const MatmulPrecision asked = p.compute.matmul;
    const bool needs_fp16 = gpu.has_kernels() && !gpu.has_bf16() && asked == MatmulPrecision::bf16;
    const MatmulPrecision matmul = needs_fp16 ? MatmulPrecision::f16 : asked;
    const Ranged<SheetShares> shares = sheet_shares(p.setup.model->config().hidden_size, compared_.mfu);
    const Ranged<StepTime> time = step_time(run, compared_.step, published_speed(gpu, matmul, shares));
    GpuVerdict verdict{
        .gpu = &gpu,
        .has_types = can_multiply(gpu, config_, asked),
        .needs_fp16 = needs_fp16 && can_multiply(gpu, config_, matmul),
        .fits = fits(plan, run.target),
        .bytes = plan.total(),
        .memory = run.target.memory,
        .recompute = run.policy(),
        .tokens_per_second = time.map([&](const StepTime& t) { return compared_.step.tokens() / t.seconds(); }),
        .limit = time.usual.limit()};
    if (e_.tokens) verdict.seconds = verdict.tokens_per_second.map([&](double s) { return *e_.tokens / s; });
    return verdict;
  }

 private:
  /// The run with one recipe of FP8, or with none.
  struct Prepared {
    ComputePlan compute;
    ModelSetup setup;
    ExecutionChoice choice;
  };

  const Prepared& prepared_for(const GpuModel& gpu) {
    ComputePlan compute = plan_compute_on_gpu(compute_choice(config_));
    compute.major = gpu.major;
    std::optional<Prepared>& p = prepared_[config_.training.fp8 && compute.has_fp8_blocks() ? 1 : 0];
    if (!p) {
      p = {compute, set_up_model(compute, training_request(config_)), {}};
      const TargetDevice unknown = target_gpu("", kUnknownGpu, 0);  // keeps only the copies that the config requests
      PlannedRun asked = planned_run(config_, *p->setup.model, e_.work, unknown);
      choose_copies(asked, {});
      p->choice = asked.choice;
    }
    return *p;
  }

  const Config& config_;
  const Estimate& e_;
  const ComparedRun& compared_;
  std::array<std::optional<Prepared>, 2> prepared_;  ///< without and with scales for blocks
};

std::vector<GpuVerdict> gpus_for(const Config& config, const Estimate& e, const ComparedRun& compared) {
  GpuComparison comparison(config, e, compared);
  std::vector<GpuVerdict> gpus;
  for (const GpuModel& gpu : gpu_models()) gpus.push_back(comparison.on(gpu));
  return gpus;
}

/// The keys of optional copies that the plan chose automatically.
std::vector<std::string> chosen_copies(const Config& config, const PlannedRun& run) {
  std::vector<std::string> keys;
  if (run.choice.operand_copies == KeepCopies::yes && config.training.operand_copies == CopyChoice::automatic)
    keys.emplace_back("operand_copies");
  if (run.choice.dense_copies == KeepCopies::yes && config.quant.dequantized_copy == CopyChoice::automatic)
    keys.emplace_back("dequantized_copy");
  return keys;
}

RanksWork ranks_work(const Estimate& e, const Place& place, const Course& course) {
  return {.compute = place.compute,
          .target = e.target,
          .speed = e.speed,
          .batches = e.work,
          .micro_batch_tokens = course.micro_batch_tokens,
          .mix = course.mix};
}

void add_ranks(Estimate& e, const ResolvedConfig& resolved, const RanksWork& work) {
  const Config& config = resolved.value;
  e.of_ranks = estimate_ranks(resolved, work);
  const std::vector<StageEstimate>& stages = e.of_ranks->stages;  // only one if the weights are on the host
  const auto stage = static_cast<ZeroStage>(config.run.zero_stage);
  const StageEstimate& own =
      stages.size() == 1 ? stages.front() : *std::ranges::find(stages, stage, &StageEstimate::stage);
  if (own.step) e.step_seconds = own.seconds;
  if (!e.problem) return;
  const auto fitting = std::ranges::find_if(e.of_ranks->stages, &StageEstimate::can);
  if (fitting != e.of_ranks->stages.end())
    e.problem->remedy = fmt::format("zero_stage={} fits; {}", static_cast<int>(fitting->stage), e.problem->remedy);
}

TracedRun trace_run(const Config& config, const PlannedRun& run, const std::filesystem::path& folder) {
  const StepTrace trace = StepTrace::read(folder);
  if (trace.ranks() != run.ranks)
    fail(ErrorKind::usage,
         {.cause = fmt::format("the timelines have {} ranks, but the config has {}", trace.ranks(), run.ranks),
          .place = folder.string(),
          .remedy = fmt::format("give the config of that run, or set nproc={} nnodes=1", trace.ranks())});
  return traced_run(trace, step_exchanges(run.model, run.reduction, run.ranks), step_shape(config, run));
}

/// Adds a remark if the largest evaluation batch needs more memory than a training step.
void remark_on_evaluation(Estimate& e, PlanQuestion question) {
  question.work = [work = std::move(question.work)](const Config& c) {
    Workload training = work(c);
    training.evaluation.reset();
    return training;
  };
  constexpr double kWorthSaying = 0.98;  // fraction of the memory
  const std::size_t without = plan_of(question, question.config).memory.total();
  if (static_cast<double>(without) > kWorthSaying * static_cast<double>(e.memory.total())) return;
  e.remarks.push_back(fmt::format(
      "evaluation needs the most memory: its largest batch has {}, and training alone needs {:.0f} MiB less; a "
      "smaller per_device_eval_batch_size saves that memory and gives the same loss",
      counted(e.work.evaluation->tokens, "token"),
      static_cast<double>(e.memory.total() - without) / static_cast<double>(std::size_t{1} << 20)));
}

}  // namespace

RunPlace place_of_run(const Config& config, const EstimateOptions& options) {
  if (options.gpu || config.run.device == DeviceChoice::cuda) return {.device = DeviceKind::cuda};
  return {};
}

std::optional<Ranged<double>> Estimate::seconds() const {
  if (steps && step_seconds) return step_seconds->map([&](double s) { return static_cast<double>(*steps) * s; });
  const auto speed = tokens_per_second();
  if (!tokens || !speed) return {};
  return speed->map([&](double s) { return *tokens / s; });
}

std::optional<Ranged<double>> Estimate::tokens_per_second() const {
  if (step_seconds) return step_seconds->map([&](double s) { return step_tokens * ranks / s; });
  if (!step_time) return {};
  return step_time->map([&](const StepTime& t) { return step_tokens * ranks / t.seconds(); });
}

std::string_view Estimate::limit() const {
  if (problem) return "memory size";
  return step_time ? step_time->usual.limit() : std::string_view{};
}

bool Estimate::has_little_room() const {
  return target.memory > 0 && static_cast<double>(least) > kFull * static_cast<double>(target.memory);
}

Estimate estimate_run(const ResolvedConfig& resolved, const EstimateOptions& options, Log& log) {
  const Config& config = resolved.value;
  ThreadPool pool(static_cast<int>(config.run.threads));
  // The ranks on a machine share its processors.
  const int threads =
      config.run.threads > 0 ? pool.size() : std::max<int>(1, pool.size() / static_cast<int>(config.run.nproc));
  const Place place = place_of(config, options, threads);
  const ModelSetup setup = set_up_model(place.compute, training_request(config));
  if (setup.adapter) check_adapter_keys(resolved, *setup.model->options().lora, setup.model->config());
  Transformer& model = *setup.model;

  Estimate e{.target = place.target, .ranks = config.run.ranks(), .sharing = model.options().context.ranks};
  const bool read = options.data == DataUse::read && config.data.has_training_rows();
  const std::int64_t longest = config.data.max_length.value_or(model.config().max_position_embeddings);
  std::optional<SplitRows> rows;
  if (read) rows = read_splits(config, DataPreparation(config, pool, log));
  const Course course = rows ? follow_data(e, config, *rows) : follow_limits(e, config, longest);
  const StepWork step = course.step(config.training);
  e.work.samples = sample_work(load_sample_prompts(config, model.config()), model.config());
  PlannedRun run = planned_run(config, model, e.work, e.target);
  e.recompute = settle_policy(run, config.training.gradient_checkpointing.policy);
  for (const RecomputePolicy& policy : policies_of(run)) e.policies.emplace_back(policy, memory_plan(run, policy));
  const std::size_t plain = memory_plan(run, e.recompute).total();
  choose_copies(run, e.recompute);
  run.choice.recompute = {e.recompute, run.inputs};
  e.memory = memory_plan(run);
  e.copies = chosen_copies(config, run);
  e.least = e.copies.empty() ? e.memory.total() : plain;
  const std::vector<ErrorText> refused = unsupported(resolved, {.device = DeviceKind::cuda});
  if (refused.empty())
    e.gpus = gpus_for(config, e, {.step = step, .mfu = options.mfu});
  else
    e.refused_on_gpus = refused.front().cause;
  if (!fits(e.memory, e.target)) e.problem = does_not_fit(run);
  e.flops_per_token = training_flops(model, course.mix, e.recompute).total();
  e.speed = speed_of(place, options,
                     {.matmul = place.compute.matmul, .threads = threads, .hidden_size = model.config().hidden_size});
  if (e.speed && rows) {
    const double loading = loading_speed(rows->train, config.training.per_device_train_batch_size);
    for (DeviceSpeed* s : {&e.speed->slow, &e.speed->usual, &e.speed->fast}) s->loading = loading;
  }
  e.step_tokens = step.tokens();
  if (e.speed) e.step_time = step_time(run, step, *e.speed);
  const auto workload = [&](const Config& c) {
    return rows ? workload_of(c.training, rows->train, rows->evaluation) : longest_workload(c, longest);
  };
  const PlanQuestion question{
      .config = config,
      .compute = place.compute,
      .target = e.target,
      .work = workload,
      .step_work = [&](const Config& c) { return rebatched(step, c.training); },
      .speed = e.speed.value_or(alike(DeviceSpeed{.flops = 1, .bandwidth = 1, .loading = {}})),
      .supported = [&](const Config& c) { return is_supported(resolved, c, e.target.device.kind); }};
  if (e.problem)
    e.ways = ways_to_fit(question, e.target.memory);
  else if (e.has_little_room())
    e.ways = ways_to_fit(question, static_cast<std::size_t>(kFull * static_cast<double>(e.target.memory)));
  if (!e.problem && e.speed) e.remarks = plan_remarks(question);
  if (auto start = remark_on_start(model, threads)) e.remarks.push_back(std::move(*start));
  if (e.work.evaluation) remark_on_evaluation(e, question);
  if (e.ranks > 1) {
    RanksWork work = ranks_work(e, place, course);
    work.gpu = gpu_of(place, options);
    work.network = options.network;
    work.place = place_of_run(config, options);
    add_ranks(e, resolved, work);
  }
  if (options.timelines) e.traced = trace_run(config, run, *options.timelines);
  return e;
}

}  // namespace qtrain
