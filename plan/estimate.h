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
  read,    ///< as a run would
  ignore,  ///< rows are taken to be as long as max_length
};

struct EstimateOptions {
  const GpuModel* gpu = nullptr;  ///< a card that need not be here; null: the device of the config
  DataUse data = DataUse::read;
  std::optional<double> mfu = {};  ///< share of a GPU's peak that a run reaches; none: sheet_shares
  NetworkOptions network = {};
  std::optional<std::filesystem::path> timelines = {};  ///< the folder of those of a run with this config
};

/// Whether a kind of GPU can do a run, and what is predicted of it there.
struct GpuVerdict {
  const GpuModel* gpu;
  bool has_types;           ///< it multiplies in the types of the run; T4 has no bfloat16
  bool needs_fp16 = false;  ///< it would with fp16 instead, which the figures are of
  bool fits;
  std::size_t bytes = 0, memory = 0;  ///< of the plan without copies that it may leave out, and what it has
  RecomputePolicy recompute = {};
  Ranged<double> tokens_per_second = {};
  std::optional<Ranged<double>> seconds = {};  ///< of the whole run
  std::string_view limit = {};

  bool can() const { return has_types && fits; }
};

/// What training needs. Memory is that of a run, byte for byte; time is an estimate.
struct Estimate {
  TargetDevice target;
  int ranks = 1;              ///< memory and speed are those of each
  int sharing = 1;            ///< of them, that share the tokens of a micro-batch
  RecomputePolicy recompute;  ///< of the run
  MemoryPlan memory;
  std::vector<std::pair<RecomputePolicy, MemoryPlan>> policies;  ///< under every recompute policy
  std::vector<std::string> copies;                               ///< keys of copies that are kept because there is room
  std::size_t least = 0;                                         ///< bytes without them
  std::vector<GpuVerdict> gpus;                                  ///< whether each kind can do it alone
  std::string refused_on_gpus;                                   ///< why none of them can; empty: they may
  std::optional<ErrorText> problem;                              ///< where the run does not fit
  Workload work;
  bool from_data = false;                      ///< whether the batches are those of the data
  std::optional<std::int64_t> steps;           ///< unknown without data and max_steps
  std::optional<double> tokens;                ///< of the whole run
  double flops_per_token = 0;                  ///< of training, what is computed again included
  std::optional<Ranged<DeviceSpeed>> speed;    ///< that the device is taken to reach
  std::optional<RanksEstimate> of_ranks;       ///< of a run of several: with each zero_stage
  std::optional<Ranged<double>> step_seconds;  ///< of the run with its own, where that is known
  std::optional<Ranged<StepTime>> step_time;   ///< of a rank, without what it exchanges with others
  double step_tokens = 0;                      ///< of a rank, in the mean
  std::vector<WayToFit> ways;                  ///< where it does not fit, or has little room
  std::vector<std::string> remarks;            ///< on what the config pays for and does not need
  std::optional<TracedRun> traced;

  std::optional<Ranged<double>> seconds() const;
  std::optional<Ranged<double>> tokens_per_second() const;
  /// "memory size" where it does not fit, else that of the step; empty where nothing is known.
  std::string_view limit() const;
  /// Whether less than a tenth of the device's memory is left.
  bool has_little_room() const;
};

/// Where it would run: a GPU need not be here.
RunPlace place_of_run(const Config& config, const EstimateOptions& options);

/// Plans the run of a config without touching its device or reading weights: only config.json, and rows and tokenizer.
/// Errors: those of a run that does not get as far as allocating its memory.
Estimate estimate_run(const ResolvedConfig& config, const EstimateOptions& options, Log& log);

}  // namespace qtrain
