#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "plan/overlap_schedule.h"
#include "plan/step_exchanges.h"

namespace qtrain {

/// What the timelines of a run's ranks (`profile`) say of its updates, in seconds. The first update is left out, and
/// those in which the run was saved or evaluated.
class StepTrace {
 public:
  /// One of a rank, by their numbers.
  struct UpdateOf {
    int rank = 0;
    std::int64_t update = 0;
  };
  /// trace-rank-N.json of all ranks in a folder. Errors: ErrorKind::input where one is missing, is no such timeline, is
  /// of a GPU or ends before the run does.
  static StepTrace read(const std::filesystem::path& folder);

  int ranks() const { return static_cast<int>(parts_.size()); }
  std::int64_t updates() const { return std::ssize(parts_.front()); }
  /// From the end of the update before to that of this one.
  double measured(const UpdateOf& at) const { return part(at).whole; }
  /// Of the parts of an update, in the mean where there are several of a name. An exchange is taken to last as long as
  /// for the rank that came to it last. An input error where the run did something that it has no duration of, as it is
  /// where the timeline is of another config.
  StepCosts costs(const StepExchanges& exchanges, const StepShape& shape, const UpdateOf& at) const;
  /// An input error about the timelines: they are of another run.
  [[noreturn]] void refuse(const std::string& cause) const;
  /// Whether all ranks computed and exchanged in an update what the schedule has; the last one of an epoch may have
  /// fewer micro-batches.
  bool follows(const StepExchanges& exchanges, const StepShape& shape, std::int64_t update) const;

 private:
  /// Of those with one name.
  struct Mean {
    double seconds = 0;
    std::int64_t count = 0;
  };
  /// An update of a rank.
  struct Part {
    std::map<std::string, Mean> spans, exchanges;  ///< by their names: of the lane that computes, and of the other
    double whole, between;
    /// The computation of the optimizer without exchanges; all exchanges before the update but of a few numbers, those
    /// of gradients just before it, and at the ends of micro-batches; of a few numbers.
    double update, exchanged, step_sum, micro_batch_sum, norm;
  };
  friend struct PartReader;

  const Part& part(const UpdateOf& at) const {
    return parts_[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.update)];
  }
  double of(const std::map<std::string, Mean>& lane, const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<std::vector<Part>> parts_;  ///< of each rank
};

/// Updates of a run that has written timelines, in the median: what was measured, and what the schedule comes to with
/// the durations of each rank's blocks and exchanges in each of them.
struct TracedRun {
  int ranks = 0;
  std::int64_t updates = 0;
  double measured = 0, predicted = 0;
  double norm = 0;                    ///< sums of a few numbers
  double computing = 0, waiting = 0;  ///< of rank 0, as predicted; what the host does between blocks is computation
};
/// An input error where no update goes as the schedule has it: the timelines are of another config.
TracedRun traced_run(const StepTrace& trace, const StepExchanges& exchanges, const StepShape& shape);

}  // namespace qtrain
