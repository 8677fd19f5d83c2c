#pragma once
#include <filesystem>
#include <optional>

#include "report/metrics.h"
#include "train/run/run_context.h"
#include "train/run/run_model.h"

namespace qtrain {

/// samples.jsonl: greedy answers of the model as it is to fixed prompts, at each evaluation. On a resume rows of later
/// steps are cut off. The rank that leads writes them; training computes the same bits with and without.
class RunSamples {
 public:
  /// What the arguments refer to must outlive this. Errors: ErrorKind::disk.
  RunSamples(const RunContext& run, RunModel& model, const std::filesystem::path& output, std::int64_t resumed_step);

  /// Answers all prompts; nothing is written where a stop comes first. Returns the seconds that it took.
  double take(std::int64_t step);

 private:
  RunContext run_;
  RunModel& model_;
  std::optional<AppendedFile> file_;
};

}  // namespace qtrain
