#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "train/setup/model_setup.h"
#include "train/setup/step_plan.h"

namespace qtrain {

/// Bytes that a run writes to its output_dir.
struct DiskPlan {
  double result = 0;             ///< the final model or adapter
  double checkpoint = 0;         ///< one checkpoint
  std::int64_t checkpoints = 0;  ///< maximum number at the same time, including one being written

  double total() const { return result + static_cast<double>(checkpoints) * checkpoint; }
  /// The result, and one checkpoint if the run saves any.
  double least() const { return result + (checkpoints > 0 ? checkpoint : 0); }
};
DiskPlan plan_disk(const TrainingSection& t, const ModelSetup& setup, const StepPlan& steps);

/// Maximum number of checkpoints that exist at the same time, including one being written; 0 if the run saves none.
std::int64_t max_checkpoints(const TrainingSection& t, const StepPlan& steps);

/// Problem or warning about a disk plan.
struct DiskVerdict {
  std::optional<ErrorText> problem;    ///< even `least` does not fit
  std::optional<std::string> warning;  ///< not all of `total` fits
};
/// Judges a plan against the `free` bytes; nothing if they are unknown.
DiskVerdict judge_disk(const DiskPlan& plan, std::optional<double> free);

}  // namespace qtrain
