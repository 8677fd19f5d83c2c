#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/check.h"
#include "config/config.h"
#include "core/log.h"
#include "plan/gpus.h"
#include "plan/memory_plan.h"
#include "plan/plan_remarks.h"
#include "plan/ranks_estimate.h"
#include "plan/run_time.h"
#include "plan/step_trace.h"
#include "plan/ways_to_fit.h"

namespace qtrain {

enum class DataUse : std::uint8_t {
  read,    ///< read the rows as a run would
  ignore,  ///< assume that all rows are max_length tokens long
};

struct EstimateOptions {
  const GpuModel* gpu = nullptr;  ///< GPU to estimate for, need not be installed; null for the device of the config
  DataUse data = DataUse::read;
  std::optional<double> mfu = {};  ///< fraction of a GPU's peak that a run reaches; default: sheet_shares
  NetworkOptions network = {};
  std::optional<std::filesystem::path> timelines = {};  ///< folder with the timelines of a run of this config
};

/// Whether a GPU model can do a run, and the predictions for it.
struct GpuVerdict {
  const GpuModel* gpu;
  bool has_types;           ///< supports the data types of the run (T4 has no bfloat16)
  bool needs_fp16 = false;  ///< supports the run only with fp16; the predictions are for that
  bool fits;
  std::size_t bytes = 0, memory = 0;  ///< planned without optional copies; available
  RecomputePolicy recompute = {};
  Ranged<double> tokens_per_second = {};
  std::optional<Ranged<double>> seconds = {};  ///< of the whole run
  std::string_view limit = {};

  bool can() const { return has_types && fits; }
};

/// Estimate of a training run. Memory is exact to the byte; time is a prediction.
struct Estimate {
  TargetDevice target;
  int ranks = 1;              ///< number of ranks; memory is per rank
  int sharing = 1;            ///< ranks that share the tokens of a micro-batch
  RecomputePolicy recompute;  ///< of the run
  MemoryPlan memory;
  std::vector<std::pair<RecomputePolicy, MemoryPlan>> policies;  ///< memory with each recompute policy
  std::vector<std::string> copies;                               ///< keys of optional copies that fit
  std::size_t least = 0;                                         ///< bytes without these copies
  std::vector<GpuVerdict> gpus;                                  ///< every known GPU, with one rank
  std::string refused_on_gpus;       ///< why no GPU can do the run; empty if it depends on the GPU
  std::optional<ErrorText> problem;  ///< set if the run does not fit
  Workload work;
  bool from_data = false;                      ///< whether batch sizes come from the data
  std::optional<std::int64_t> steps;           ///< empty without data and max_steps
  std::optional<double> tokens;                ///< of the whole run
  double flops_per_token = 0;                  ///< of training, including recomputation
  std::optional<Ranged<DeviceSpeed>> speed;    ///< assumed speed of the device
  std::optional<RanksEstimate> of_ranks;       ///< for several ranks: each zero_stage
  std::optional<Ranged<double>> step_seconds;  ///< with the run's own zero_stage, if known
  std::optional<Ranged<StepTime>> step_time;   ///< of one rank, without communication
  double step_tokens = 0;                      ///< mean tokens per step of one rank
  std::vector<WayToFit> ways;                  ///< if the run does not fit or has little room
  std::vector<std::string> remarks;            ///< on settings that cost time without being needed
  std::optional<TracedRun> traced;

  std::optional<Ranged<double>> seconds() const;
  std::optional<Ranged<double>> tokens_per_second() const;
  /// "memory size" if the run does not fit, else what limits the step; empty if unknown.
  std::string_view limit() const;
  /// Whether less than a tenth of the device's memory is left.
  bool has_little_room() const;
};

/// The place where the run would compute; a GPU need not be installed.
RunPlace place_of_run(const Config& config, const EstimateOptions& options);

/// Plans a run without using its device or reading weights: it reads only config.json, the rows and the tokenizer.
/// Throws the errors that the run would throw before it allocates memory.
Estimate estimate_run(const ResolvedConfig& config, const EstimateOptions& options, Log& log);

}  // namespace qtrain
