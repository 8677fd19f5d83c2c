#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/error.h"
#include "core/formats/json.h"
#include "data/loader.h"
#include "model/execution_plan.h"
#include "optim/table.h"
#include "train/ranks/gradient_exchange.h"
#include "train/setup/sample_prompts.h"
#include "train/step/row_noise.h"

namespace qtrain {

inline constexpr double kMib = 1 << 20;

/// Planned device memory of a run by component, in bytes.
struct MemoryPlan {
  struct Part {
    std::string name;
    std::size_t bytes;
  };
  std::vector<Part> parts;
  std::vector<Part> pinned = {};  ///< pinned host memory of components that are offloaded

  std::size_t total() const;
  /// "weights 12 MiB, gradients 12 MiB, ...", largest first, without empty parts.
  std::string table() const;
  /// Bytes of the part with that name.
  std::size_t bytes_of(std::string_view name) const;
  /// Every part and "total", in bytes; `pinned_json` has the parts in host memory.
  Json json() const;
  Json pinned_json() const;
};

/// The device that a run is planned for; need not be installed.
struct TargetDevice {
  Device device;
  std::string name;
  std::size_t memory = 0;     ///< bytes that a run can use; 0 if unknown
  std::size_t workspace = 0;  ///< bytes of ops' workspace, independent of the model
  bool converts = false;      ///< GEMM operands are converted into separate memory (cuBLASLt)
};
/// This machine's processor or GPU, with its free memory and what this process already uses.
TargetDevice target_here(Device device, int threads);
/// A GPU on which a run can use `memory` bytes.
TargetDevice target_gpu(std::string name, int major, std::size_t memory);

/// The micro-batches of an optimizer step: rows per micro-batch and number of micro-batches.
struct MicroBatching {
  std::int64_t micro_batch_size = 1, gradient_accumulation_steps = 1;
};
/// Work of answering a run's sample prompts.
struct SampleWork {
  BatchSize step = {};  ///< tokens is 0 if there are no prompts
  GeneratorOptions generation = {};
};
SampleWork sample_work(const SamplePrompts& prompts, const ModelConfig& model);

/// The batches of a run, over all ranks that share their tokens.
struct Workload {
  BatchSize train;  ///< the largest micro-batch
  std::optional<BatchSize> evaluation = {};
  MicroBatching micro_batching;  ///< as in the config
  Noise noise = Noise::none;     ///< on the embeddings
  SampleWork samples = {};

  /// The passes of one of the ranks that share the tokens.
  std::vector<PlannedPass> passes(const ContextShare& share) const;
};
/// Batches of these rows; without evaluation rows there is no evaluation.
Workload workload_of(const TrainingSection& t, const Dataset& train, const Dataset& evaluation);
/// Batches of unknown rows, all assumed to be `longest` tokens long.
Workload longest_workload(const Config& config, std::int64_t longest);

/// The state of a run's optimizer.
struct PlannedState {
  OptimizerOptions options;
  OptimizerMemory memory;
  Placement placement = Placement::device;
  Pages pages = Pages::never;  ///< whether it may be moved to the host

  std::size_t on_device() const { return memory.on_device(placement); }
};
/// The state as configured; on a processor, placement makes no difference.
PlannedState plan_state(const TrainingSection& t, Transformer& model);

/// A run to plan. Its model is declared, but need not have memory.
struct PlannedRun {
  Transformer& model;
  PlannedState optimizer;
  Workload work;
  TargetDevice target;
  BlockInputs inputs = BlockInputs::device;  ///< as configured
  CopyChoice dense_copies = CopyChoice::automatic, operand_copies = CopyChoice::automatic;
  int ranks = 1;
  ReductionOptions reduction = {};
  ExecutionChoice choice = {};  ///< the decisions made: see plan_run

  const RecomputePolicy& policy() const { return choice.recompute.policy; }
};
/// The run of a config with a model declared for it.
PlannedRun planned_run(const Config& config, Transformer& model, Workload work, TargetDevice target);
/// Memory with this recompute policy, or with the run's own, and with the copies chosen for the run.
MemoryPlan memory_plan(const PlannedRun& run, const RecomputePolicy& policy);
MemoryPlan memory_plan(const PlannedRun& run);
/// Whether a plan fits; true if the device's memory is unknown.
bool fits(const MemoryPlan& plan, const TargetDevice& target);

/// Decides whether to keep 16-bit copies of float32 weights and dense copies of quantized ones: if the config requests
/// them or, on a GPU with known memory, if they fit with this recompute policy.
void choose_copies(PlannedRun& run, const RecomputePolicy& policy);

/// The recompute policies of a run, fastest first.
std::vector<RecomputePolicy> policies_of(const PlannedRun& run);
/// The fastest recompute policy that fits; if none does, the one that needs the least memory.
RecomputePolicy fastest_policy(const PlannedRun& run);
/// The largest micro-batch size below the config's that fits, with the same number of rows per optimizer step.
/// gradient_accumulation_steps is 0 if there is none.
MicroBatching fitting_micro_batching(const PlannedRun& run);
/// The error if the plan is larger than the memory: its parts, micro-batches that fit, and other ways to save memory.
ErrorText does_not_fit(const PlannedRun& run);

/// The policy named `wanted`, or the fastest that fits for Recompute::kAuto. If no plan fits, moves the state of a
/// paged optimizer to the host first.
RecomputePolicy settle_policy(PlannedRun& run, const std::string& wanted);

/// Decides on the recompute policy and the copies, and plans the memory. Throws ErrorKind::memory if it does not fit.
MemoryPlan plan_run(PlannedRun& run, const std::string& wanted);

}  // namespace qtrain
