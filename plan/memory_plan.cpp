#include "plan/memory_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "kernels/gemm_workspaces.h"
#include "model/recompute.h"
#include "model/runner.h"
#include "plan/machine.h"
#include "train/ranks/gradient_exchange.h"
#include "train/step/evaluate.h"
#include "train/step/step.h"

namespace qtrain {
namespace {

// Memory that the driver takes on first use: kernels, libraries, recorded graphs.
constexpr std::size_t kDriverBytes = std::size_t{512} << 20;

double mib(std::size_t bytes) {
  return static_cast<double>(bytes) / kMib;
}

// Bounds for a micro-batch of fewer rows, which may contain the longest ones.
BatchSize smaller(const BatchSize& largest, std::int64_t rows) {
  const std::int64_t tokens = std::min(largest.tokens, rows * largest.positions);
  return {.tokens = tokens, .positions = largest.positions, .targets = std::min(largest.targets, tokens)};
}

// Bytes sent to the device in each step, and sent back.
std::size_t input_bytes(const Workload& work, const ContextShare& share) {
  std::size_t bytes = TrainStep::bytes(work.train.tokens, share, work.noise);
  if (work.evaluation) bytes += Evaluator::bytes(work.evaluation->tokens, share);
  return bytes;
}

// Memory that ranks need to sum their gradients.
std::size_t communication_bytes(const PlannedRun& run) {
  const std::vector<Param*> trained = run.model.trained();
  const std::size_t squares = GradientSquares::bytes(run.model.device(), run.reduction.order, trained);
  return squares + GradientExchange::bytes(run.ranks, run.reduction, run.model.params().stores());
}

/// One way to save memory.
struct Remedy {
  std::string setting;
  std::size_t bytes;  ///< of the run with this setting
};

// Memory of the same run with other model options.
std::size_t bytes_with(const PlannedRun& run, const TransformerOptions& options) {
  Transformer model(run.model.device(), options);
  PlannedState state = run.optimizer;
  state.memory = optimizer_memory(*make_rule(state.options), model.trained(), model.device());
  if (options.sharding.on_host) state.placement = Placement::pinned;
  return memory_plan({.model = model,
                      .optimizer = state,
                      .work = run.work,
                      .target = run.target,
                      .inputs = run.inputs,
                      .ranks = run.ranks,
                      .reduction = run.reduction},
                     run.policy())
      .total();
}

// Memory with frozen weights in 4 bits; empty if that is not possible.
std::optional<std::size_t> quantized_bytes(const PlannedRun& run) {
  TransformerOptions options = run.model.options();
  if (!options.lora || options.quantization) return {};
  options.quantization = Quantization{.bnb = {.quant_type = FourBit::nf4}};
  return bytes_with(run, options);
}

// Memory with the weights on the host.
std::size_t bytes_with_weights_on_host(const PlannedRun& run) {
  TransformerOptions options = run.model.options();
  options.sharding.stage = ZeroStage::weights;
  options.sharding.on_host = true;
  return bytes_with(run, options);
}

// With several ranks: sharing tokens, or holding fewer of each other's keys at a time.
std::optional<Remedy> sharing_remedy(const PlannedRun& run) {
  constexpr int kSharing = 2;
  TransformerOptions options = run.model.options();
  if (options.context.is_shared()) {
    options.context.key_heads = 1;
    return Remedy{"context_parallel_heads=1", bytes_with(run, options)};
  }
  const bool masked = options.lora && options.lora->dropout > 0;
  if (run.ranks % kSharing != 0 || masked || options.config.is_balanced()) return {};
  options.context.ranks = kSharing;
  return Remedy{fmt::format("context_parallel_size={} with gradient_accumulation_steps={}", kSharing,
                            kSharing * run.work.micro_batching.gradient_accumulation_steps),
                bytes_with(run, options)};
}

std::vector<Remedy> remedies(const PlannedRun& run) {
  std::vector<Remedy> found;
  const RecomputePolicy block(RecomputePolicy::Kind::block);
  for (const RecomputePolicy& policy : policies_of(run))
    found.push_back({fmt::format("gradient_checkpointing={}", policy == block ? "true" : policy.name()),
                     memory_plan(run, policy).total()});
  const RecomputePolicy& policy = run.policy();
  if (run.target.device.kind == DeviceKind::cuda && run.optimizer.placement == Placement::device) {
    PlannedRun other = run;
    other.optimizer.placement = Placement::pinned;
    found.push_back({"optimizer_offload=true", memory_plan(other, policy).total()});
  }
  if (run.target.device.kind == DeviceKind::cuda && !run.model.options().sharding.on_host)
    found.push_back({"weight_offload=true", bytes_with_weights_on_host(run)});
  PlannedRun coded = run;
  coded.optimizer.options.name = "adamw_8bit";
  coded.optimizer.memory =
      optimizer_memory(*make_rule(coded.optimizer.options), run.model.trained(), run.model.device());
  found.push_back({"optim=adamw_8bit", memory_plan(coded, policy).total()});
  if (run.target.device.kind == DeviceKind::cuda && run.inputs == BlockInputs::device) {
    PlannedRun other = run;
    other.inputs = BlockInputs::host;
    const bool blocks = policy.whole_blocks();
    found.push_back(
        {blocks ? "activation_offloading=true" : "activation_offloading=true with gradient_checkpointing=true",
         memory_plan(other, blocks ? policy : block).total()});
  }
  if (const auto bytes = quantized_bytes(run)) found.push_back({"load_in_4bit=true", *bytes});
  if (const auto sharing = sharing_remedy(run)) found.push_back(*sharing);
  if (run.choice.dense_copies == KeepCopies::yes && !run.model.quantized().empty()) {
    PlannedRun other = run;
    other.choice.dense_copies = KeepCopies::no;
    found.push_back({"dequantized_copy=false", memory_plan(other).total()});
  }
  if (run.choice.operand_copies == KeepCopies::yes) {
    PlannedRun other = run;
    other.choice.operand_copies = KeepCopies::no;
    found.push_back({"operand_copies=false", memory_plan(other).total()});
  }
  if (run.work.evaluation) {
    PlannedRun other = run;
    other.work.evaluation = smaller(*run.work.evaluation, 1);
    found.push_back({"per_device_eval_batch_size=1", memory_plan(other).total()});
  }
  std::stable_sort(found.begin(), found.end(), [](const Remedy& a, const Remedy& b) { return a.bytes < b.bytes; });
  return found;
}

std::size_t sum_of(const std::vector<MemoryPlan::Part>& parts) {
  std::size_t sum = 0;
  for (const MemoryPlan::Part& p : parts) sum += p.bytes;
  return sum;
}

Json json_of(const std::vector<MemoryPlan::Part>& parts) {
  Json json = Json::object();
  for (const MemoryPlan::Part& p : parts) json[p.name] = p.bytes;
  json["total"] = sum_of(parts);
  return json;
}

}  // namespace

std::size_t MemoryPlan::total() const {
  return sum_of(parts);
}

std::size_t MemoryPlan::bytes_of(std::string_view name) const {
  const auto part = std::ranges::find(parts, name, &Part::name);
  check(part != parts.end(), "unknown part of a memory plan");
  return part->bytes;
}

std::string MemoryPlan::table() const {
  std::vector<Part> sorted = parts;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Part& a, const Part& b) { return a.bytes > b.bytes; });
  std::string text;
  for (Part& p : sorted) {
    if (p.bytes == 0) continue;
    std::replace(p.name.begin(), p.name.end(), '_', ' ');
    const bool small = p.bytes < kMib;
    text += fmt::format("{}{} {:.0f} {}", text.empty() ? "" : ", ", p.name,
                        small ? std::ceil(static_cast<double>(p.bytes) / 1024) : mib(p.bytes), small ? "KiB" : "MiB");
  }
  return text;
}

Json MemoryPlan::json() const {
  return json_of(parts);
}

Json MemoryPlan::pinned_json() const {
  return json_of(pinned);
}

TargetDevice target_here(Device device, int threads) {
  const std::size_t own = allocated_bytes(device.kind).now;
  if (device.kind == DeviceKind::cpu)
    return {.device = device,
            .name = "cpu",
            .memory = static_cast<std::size_t>(machine_memory().usable()) + own,
            .workspace = Ctx::kWorkspaceBytes * static_cast<std::size_t>(threads)};
  const DeviceInfo gpu = cuda_info(device.index);
  const std::size_t there = gpu.free_bytes + own, kept = gpu.emulated ? 0 : kDriverBytes;
  TargetDevice target = target_gpu(gpu.name, gpu.major, there > kept ? there - kept : 1);
  target.device = device;
  if (gpu.emulated) target.converts = false;  // its GEMMs are the CPU's
  return target;
}

TargetDevice target_gpu(std::string name, int major, std::size_t memory) {
  return {.device = {.kind = DeviceKind::cuda},
          .name = std::move(name),
          .memory = memory,
          .workspace = Ctx::kScratchBytes + GemmWorkspaces::bytes(major),
          .converts = true};
}

std::vector<PlannedPass> Workload::passes(const ContextShare& share) const {
  std::vector<PlannedPass> all{{Pass::train, own_size(train, share)}};
  if (evaluation) all.push_back({Pass::evaluate, own_size(*evaluation, share)});
  if (samples.step.tokens > 0) all.push_back({Pass::decode, samples.step});
  return all;
}

SampleWork sample_work(const SamplePrompts& prompts, const ModelConfig& model) {
  if (prompts.empty()) return {};
  const GeneratorOptions generation = prompts.generation();
  return {.step = Generator::largest(generation, prompts.longest(model)), .generation = generation};
}

namespace {

Noise noise_on(const TrainingSection& t) {
  return t.neftune_noise_alpha.value_or(0) > 0 ? Noise::on_rows : Noise::none;
}

}  // namespace

Workload workload_of(const TrainingSection& t, const Dataset& train, const Dataset& evaluation) {
  Workload work{.train = largest_batch(Loader(train, {.batch_size = t.per_device_train_batch_size}), train),
                .micro_batching = {t.per_device_train_batch_size, t.gradient_accumulation_steps},
                .noise = noise_on(t)};
  if (evaluation.size() > 0)
    work.evaluation = largest_batch(Loader(evaluation, {.batch_size = t.per_device_eval_batch_size}), evaluation);
  return work;
}

Workload longest_workload(const Config& config, std::int64_t longest) {
  const TrainingSection& t = config.training;
  const auto batch = [&](std::int64_t rows) {
    return BatchSize{.tokens = rows * longest, .positions = longest, .targets = rows * longest};
  };
  Workload work{.train = batch(t.per_device_train_batch_size),
                .micro_batching = {t.per_device_train_batch_size, t.gradient_accumulation_steps},
                .noise = noise_on(t)};
  if (!config.data.eval_dataset_name.empty() || config.data.eval_split > 0)
    work.evaluation = batch(t.per_device_eval_batch_size);
  return work;
}

PlannedState plan_state(const TrainingSection& t, Transformer& model) {
  PlannedState state{.options = optimizer_options(t), .memory = {}};
  state.memory = optimizer_memory(*make_rule(state.options), model.trained(), model.device());
  if (model.device().kind == DeviceKind::cpu) return state;
  if (t.optimizer_offload || model.options().sharding.on_host) state.placement = Placement::pinned;
  state.pages = find_optimizer(t.optim)->pages;
  return state;
}

PlannedRun planned_run(const Config& config, Transformer& model, Workload work, TargetDevice target) {
  const TrainingSection& t = config.training;
  const bool on_host = t.activation_offloading && target.device.kind != DeviceKind::cpu;
  ReductionOptions reduction{
      .order = config.run.deterministic_reduce ? ReductionOrder::micro_batches : ReductionOrder::ranks,
      .beside = exchanges_beside(model),
      .wire = config.run.communication_data_type == "bf16" ? DType::bf16 : DType::f32};
  if (config.run.ddp_bucket_cap_mb) reduction.bucket_bytes = *config.run.ddp_bucket_cap_mb << 20;
  return {.model = model,
          .optimizer = plan_state(t, model),
          .work = work,
          .target = std::move(target),
          .inputs = on_host ? BlockInputs::host : BlockInputs::device,
          .dense_copies = config.quant.dequantized_copy,
          .operand_copies = t.operand_copies,
          .ranks = config.run.ranks(),
          .reduction = reduction};
}

MemoryPlan memory_plan(const PlannedRun& run, const RecomputePolicy& policy) {
  ExecutionChoice choice = run.choice;
  choice.recompute = {policy, run.inputs};
  const ContextShare& share = run.model.options().context;
  const ExecutionMemory execution = Runner::measure(run.model, {choice, run.work.passes(share)});
  const ActivationBytes& activations = execution.activations;
  const Parameters& params = run.model.params();
  const std::size_t converted = run.target.converts ? execution.gemm.total() : 0;
  const bool on_host = run.model.options().sharding.on_host;
  const std::size_t state_of_codes = on_host ? 0 : params.quantization_bytes();
  const AdapterParams& adapter = params.adapter();
  const std::size_t initial = adapter.initial().values().planned();
  const bool on_cpu = run.model.device().kind == DeviceKind::cpu;
  MemoryPlan plan{
      {{"weights", params.weights().values().planned() - state_of_codes},
       {"quantization_state", state_of_codes},
       {"dequantized_weights", execution.dense_copies + activations.dense},
       {"operand_copies", execution.operand_copies},
       {"adapters", adapter.store().values().planned() + adapter.norms().values().planned() + (on_cpu ? initial : 0)},
       {"gathered_units", params.weights().gathered().planned() + adapter.store().gathered().planned()},
       {"gradients", params.weights().grads().planned() + adapter.store().grads().planned()},
       {"optimizer", run.optimizer.on_device() + run.optimizer.memory.other},
       {"activations", activations.total - activations.head - activations.dense - activations.gathered},
       {"gathered_keys", activations.gathered},
       {"logits", activations.head},
       {"inputs", input_bytes(run.work, share)},
       {"workspace", run.target.workspace + converted},
       {"communication", communication_bytes(run)}},
      {{"weights", params.weights().on_host().planned()},
       {"adapters", adapter.store().on_host().planned() + (on_cpu ? 0 : initial)},
       {"optimizer", run.optimizer.memory.on_host(run.optimizer.placement)},
       {"activations", activations.pinned}}};
  if (const SampleWork& samples = run.work.samples; samples.step.tokens > 0)
    plan.parts.push_back({"samples", Generator::bytes(run.model, samples.generation, samples.step.positions)});
  return plan;
}

MemoryPlan memory_plan(const PlannedRun& run) {
  return memory_plan(run, run.policy());
}

bool fits(const MemoryPlan& plan, const TargetDevice& target) {
  return target.memory == 0 || plan.total() <= target.memory;
}

std::vector<RecomputePolicy> policies_of(const PlannedRun& run) {
  std::vector<RecomputePolicy> policies = RecomputePolicy::choices(run.model.config().layers);
  if (run.inputs == BlockInputs::host)
    std::erase_if(policies, [](const RecomputePolicy& policy) { return !policy.whole_blocks(); });
  return policies;
}

RecomputePolicy fastest_policy(const PlannedRun& run) {
  RecomputePolicy smallest;
  std::optional<std::size_t> least;
  for (const RecomputePolicy& policy : policies_of(run)) {
    const MemoryPlan plan = memory_plan(run, policy);
    if (fits(plan, run.target)) return policy;
    if (least && plan.total() >= *least) continue;
    smallest = policy;
    least = plan.total();
  }
  return smallest;
}

RecomputePolicy settle_policy(PlannedRun& run, const std::string& wanted) {
  const auto policy = [&] { return wanted == Recompute::kAuto ? fastest_policy(run) : RecomputePolicy::named(wanted); };
  if (run.optimizer.pages == Pages::where_needed && !fits(memory_plan(run, policy()), run.target))
    run.optimizer.placement = Placement::pinned;
  return policy();
}

MicroBatching fitting_micro_batching(const PlannedRun& run) {
  const MicroBatching asked = run.work.micro_batching;
  const std::int64_t rows = asked.micro_batch_size * asked.gradient_accumulation_steps;
  for (std::int64_t batch = asked.micro_batch_size - 1; batch > 0; --batch) {
    if (rows % batch != 0) continue;
    PlannedRun other = run;
    other.work.train = smaller(run.work.train, batch);
    if (fits(memory_plan(other), run.target)) return {batch, rows / batch};
  }
  return {1, 0};
}

ErrorText does_not_fit(const PlannedRun& run) {
  const MemoryPlan plan = memory_plan(run);
  std::vector<std::string> ways;
  if (const MicroBatching m = fitting_micro_batching(run); m.gradient_accumulation_steps > 0)
    ways.push_back(fmt::format("per_device_train_batch_size={} with gradient_accumulation_steps={} fits",
                               m.micro_batch_size, m.gradient_accumulation_steps));
  for (const Remedy& r : remedies(run))
    if (r.bytes < plan.total())
      ways.push_back(fmt::format("{} saves {:.0f} MiB{}", r.setting, mib(plan.total() - r.bytes),
                                 r.bytes <= run.target.memory ? " and fits" : ""));
  ways.emplace_back(run.model.options().lora ? "lower max_length" : "lower max_length, or train an adapter (use_peft)");
  return {.cause = fmt::format("the run does not fit in memory: it needs {:.0f} MiB ({}), but {:.0f} MiB are available",
                               mib(plan.total()), plan.table(), mib(run.target.memory)),
          .remedy = fmt::format("{}", fmt::join(ways, "; "))};
}

// Operand copies first: they gain more time per byte.
void choose_copies(PlannedRun& run, const RecomputePolicy& policy) {
  if (run.model.options().sharding.divides_weights()) return;  // no rank has whole weights to copy
  const bool known_gpu = run.target.device.kind == DeviceKind::cuda && run.target.memory > 0;
  const auto choose = [&](CopyChoice wanted, KeepCopies ExecutionChoice::*copies, bool useful) {
    PlannedRun with = run;
    with.choice.*copies = KeepCopies::yes;
    const bool keeps = wanted == CopyChoice::automatic
                           ? useful && known_gpu && memory_plan(with, policy).total() <= run.target.memory
                           : wanted == CopyChoice::always;
    if (keeps) run.choice = with.choice;
  };
  choose(run.operand_copies, &ExecutionChoice::operand_copies, run.target.converts);
  choose(run.dense_copies, &ExecutionChoice::dense_copies,
         !run.model.quantized().empty() && !run.model.options().multiplies_stored_fp8());
}

MemoryPlan plan_run(PlannedRun& run, const std::string& wanted) {
  const RecomputePolicy policy = settle_policy(run, wanted);
  choose_copies(run, policy);
  run.choice.recompute = {policy, run.inputs};
  MemoryPlan plan = memory_plan(run);
  if (!fits(plan, run.target)) fail(ErrorKind::memory, does_not_fit(run));
  return plan;
}

}  // namespace qtrain
