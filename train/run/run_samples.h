#pragma once
#include <cstdint>
#include <optional>

#include "report/metrics.h"
#include "train/run/run.h"

namespace qtrain {

/// Writes samples.jsonl: greedy answers of the current model to fixed prompts, at each evaluation. A resume drops rows
/// of later steps. Only the leading rank writes; sampling does not change the training results.
class RunSamples {
 public:
  /// `run` must outlive this object. Throws ErrorKind::disk.
  RunSamples(Run& run, std::int64_t resumed_step);

  /// Answers all prompts; writes nothing if a stop comes first. Returns the seconds that it took.
  double take(std::int64_t step);

 private:
  Run& run_;
  std::optional<AppendedFile> file_;
};

}  // namespace qtrain
