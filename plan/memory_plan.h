#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/error.h"
#include "core/formats/json.h"
#include "data/loader.h"
#include "model/transformer.h"
#include "optim/table.h"
#include "train/ranks/gradient_exchange.h"
#include "train/setup/sample_prompts.h"

namespace qtrain {

inline constexpr double kMib = 1 << 20;

/// What a run puts into the memory of its device, in bytes.
struct MemoryPlan {
  struct Part {
    std::string name;
    std::size_t bytes;
  };
  std::vector<Part> parts;
  std::vector<Part> pinned = {};  ///< page-locked memory of the host, for what is kept there instead

  std::size_t total() const;
  /// "weights 12 MiB, gradients 12 MiB, ...", largest first, without empty parts.
  std::string table() const;
  /// Of the part of that name.
  std::size_t bytes_of(std::string_view name) const;
  /// Every part and "total", in bytes; `pinned_json` those of the host.
  Json json() const;
  Json pinned_json() const;
};

/// The device that a run is planned for; it need not be here.
struct TargetDevice {
  Device device;
  std::string name;
  std::size_t memory = 0;     ///< bytes that a run may take; 0: unknown
  std::size_t workspace = 0;  ///< bytes that ops take, whatever the model is
  bool converts = false;      ///< operands of GEMMs are converted in memory of their own (cuBLASLt)
};
/// This machine's processor or GPU, with what is free on it and what this process has already.
TargetDevice target_here(Device device, int threads);
/// A GPU that has so many bytes for a run.
TargetDevice target_gpu(std::string name, int major, std::size_t memory);

/// The micro-batches of an optimizer step: rows in each, and how many accumulate their gradients.
struct MicroBatching {
  std::int64_t micro_batch_size = 1, gradient_accumulation_steps = 1;
};
/// Answers to the prompts of a run.
struct SampleWork {
  BatchSize step = {};  ///< tokens 0: there are none
  GeneratorOptions generation = {};
};
SampleWork sample_work(const SamplePrompts& prompts, const ModelConfig& model);

/// The batches of a run, over all ranks that share their tokens.
struct Workload {
  BatchSize train;  ///< the largest micro-batch
  std::optional<BatchSize> evaluation = {};
  MicroBatching micro_batching;  ///< that the config asks for
  SampleWork samples = {};

  /// As one of the ranks has them that share their tokens.
  std::vector<PlannedPass> passes(const ContextShare& share) const;
};
/// Of these rows; without evaluation rows nothing is evaluated.
Workload workload_of(const TrainingSection& t, const Dataset& train, const Dataset& evaluation);
/// Of rows that are not known: all as long as `longest`.
Workload longest_workload(const Config& config, std::int64_t longest);

/// The state of a run's optimizer.
struct PlannedState {
  OptimizerOptions options;
  OptimizerMemory memory;
  Placement placement = Placement::device;
  Pages pages = Pages::never;  ///< whether it may go to the host

  std::size_t on_device() const { return memory.on_device(placement); }
};
/// As the config asks; on a processor it is all one.
PlannedState plan_state(const TrainingSection& t, Transformer& model);

/// A run whose model is declared; it need not have memory.
struct PlannedRun {
  Transformer& model;
  PlannedState optimizer;
  Workload work;
  TargetDevice target;
  BlockInputs inputs = BlockInputs::device;  ///< as the config asks
  CopyChoice dense_copies = CopyChoice::automatic, operand_copies = CopyChoice::automatic;
  int ranks = 1;
  ReductionOptions reduction = {};
  ExecutionChoice choice = {};  ///< what became of that: see plan_run

  const RecomputePolicy& policy() const { return choice.recompute.policy; }
};
/// The run of a config with a model that was declared for it.
PlannedRun planned_run(const Config& config, Transformer& model, Workload work, TargetDevice target);
/// With the copies of the run's choice, under this recompute policy; or under its own.
MemoryPlan memory_plan(const PlannedRun& run, const RecomputePolicy& policy);
MemoryPlan memory_plan(const PlannedRun& run);
/// Whether a plan fits, as far as that is known.
bool fits(const MemoryPlan& plan, const TargetDevice& target);

/// Chooses to keep 16-bit copies of float32 weights and dense copies of quantized ones where the config asks for them
/// or, on a GPU whose memory is known, where they fit beside the run under this recompute policy.
void choose_copies(PlannedRun& run, const RecomputePolicy& policy);

/// The policies that a run can choose from, the fastest first.
std::vector<RecomputePolicy> policies_of(const PlannedRun& run);
/// The fastest recompute policy that fits; the one that needs least where none does.
RecomputePolicy fastest_policy(const PlannedRun& run);
/// Optimizer steps of as many rows that fit: those with the largest micro-batches below that of the config.
/// gradient_accumulation_steps 0 if there are none.
MicroBatching fitting_micro_batching(const PlannedRun& run);
/// What to say where the plan is larger than the memory: the table, micro-batches that fit, and what else saves memory.
ErrorText does_not_fit(const PlannedRun& run);

/// The policy that `wanted` stands for: itself, or for Recompute::kAuto the fastest that fits. Where no such plan
/// fits, the state of a paged optimizer goes to the host first.
RecomputePolicy settle_policy(PlannedRun& run, const std::string& wanted);

/// Makes the run's choice: that policy, and copies. Throws ErrorKind::memory where the run does not fit.
MemoryPlan plan_run(PlannedRun& run, const std::string& wanted);

}  // namespace qtrain
