#pragma once
#include <cstdint>
#include <optional>

#include "core/error.h"
#include "train/setup.h"

namespace qtrain {

/// What a run writes to its output_dir, in bytes.
struct DiskPlan {
  double result = 0;             ///< the final model or adapter
  double checkpoint = 0;         ///< one checkpoint
  std::int64_t checkpoints = 0;  ///< that are there at once at the most

  double total() const { return result + static_cast<double>(checkpoints) * checkpoint; }
};
DiskPlan plan_disk(const TrainingSection& t, const ModelSetup& setup, std::int64_t steps);

/// What is wrong where only so many bytes are free: the run could not even write its result. `free` 0: not known.
std::optional<ErrorText> disk_problem(const DiskPlan& plan, double free);

}  // namespace qtrain
