#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "plan/overlap_schedule.h"
#include "plan/step_exchanges.h"

namespace qtrain {

/// What the schedule expects of a step.
struct ExpectedStep {
  ExpectedStep(const StepExchanges& all, const StepShape& of);

  const StepExchanges& exchanges;
  const StepShape& shape;
  std::map<std::string, std::int64_t> calls;  ///< how often a step runs each collective, by name
};

/// Times of optimizer steps from the timelines of a run's ranks (`profile`), in seconds. Leaves out the first step and
/// steps that include a save or an evaluation.
class StepTrace {
 public:
  /// An optimizer step of a rank, by number.
  struct UpdateOf {
    int rank = 0;
    std::int64_t update = 0;
  };
  /// Reads trace-rank-N.json of all ranks in a folder. Throws ErrorKind::input if a file is missing or is not a
  /// timeline, is from a GPU, or ends before the run.
  static StepTrace read(const std::filesystem::path& folder);

  int ranks() const { return static_cast<int>(parts_.size()); }
  std::int64_t updates() const { return std::ssize(parts_.front()); }
  /// Seconds from the end of the previous update to the end of this one.
  double measured(const UpdateOf& at) const { return part(at).whole; }
  /// Durations of the parts of a step; the mean if a name occurs several times. A collective counts from when the last
  /// rank reached it. Throws ErrorKind::input if a duration is missing, as in the timeline of another config.
  StepCosts costs(const StepExchanges& exchanges, const StepShape& shape, const UpdateOf& at) const;
  /// Throws ErrorKind::input: the timelines are from another run.
  [[noreturn]] void refuse(const std::string& cause) const;
  /// Whether all ranks did in this step what the schedule expects; the last step of an epoch may have fewer
  /// micro-batches.
  bool follows(const ExpectedStep& expected, std::int64_t update) const;

 private:
  /// Mean over the spans with one name.
  struct Mean {
    double seconds = 0;
    std::int64_t count = 0;
  };
  /// One step of a rank.
  struct Part {
    std::map<std::string, Mean> spans, exchanges;  ///< by name: of the computing and of the communication lane
    double whole, between;
    /// The optimizer's computation; all collectives before the update except reductions of single numbers; the
    /// reductions of gradients just before the update, and at the ends of micro-batches; the reductions of single
    /// numbers.
    double update, exchanged, step_sum, micro_batch_sum, norm;
  };
  friend struct PartReader;

  const Part& part(const UpdateOf& at) const {
    return parts_[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.update)];
  }
  double of(const std::map<std::string, Mean>& lane, const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<std::vector<Part>> parts_;  ///< by rank
};

/// Median over the optimizer steps of a run's timelines: the measured time, and the time that the schedule predicts
/// from the durations of each rank's blocks and collectives in that step.
struct TracedRun {
  int ranks = 0;
  std::int64_t updates = 0;
  double measured = 0, predicted = 0;
  double norm = 0;                    ///< reductions of single numbers
  double computing = 0, waiting = 0;  ///< predicted for rank 0; host work between blocks counts as computing
};
/// Throws ErrorKind::input if no step follows the schedule: the timelines are from another config.
TracedRun traced_run(const StepTrace& trace, const StepExchanges& exchanges, const StepShape& shape);

}  // namespace qtrain
