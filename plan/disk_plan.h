#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "train/setup/model_setup.h"
#include "train/setup/step_plan.h"

namespace qtrain {

/// What a run writes to its output_dir, in bytes.
struct DiskPlan {
  double result = 0;             ///< the final model or adapter
  double checkpoint = 0;         ///< one checkpoint
  std::int64_t checkpoints = 0;  ///< that are there at once at the most, the one in the making among them

  double total() const { return result + static_cast<double>(checkpoints) * checkpoint; }
  /// The result, and where checkpoints are saved the first of them.
  double least() const { return result + (checkpoints > 0 ? checkpoint : 0); }
};
DiskPlan plan_disk(const TrainingSection& t, const ModelSetup& setup, const StepPlan& steps);

/// How many checkpoints of a run are there at once at the most, the one in the making among them; 0: it saves none.
std::int64_t max_checkpoints(const TrainingSection& t, const StepPlan& steps);

/// What is said of a plan where so many bytes are `free` (none: not known).
struct DiskVerdict {
  std::optional<ErrorText> problem;    ///< the run could not even write `least`
  std::optional<std::string> warning;  ///< it could not keep all that it wants to keep
};
DiskVerdict judge_disk(const DiskPlan& plan, std::optional<double> free);

}  // namespace qtrain
