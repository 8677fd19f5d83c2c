#pragma once
#include <cstdint>
#include <optional>

namespace qtrain {

/// Which metric is better.
enum class Better : std::uint8_t { lower, higher };
/// Whether the threshold is a share of the best metric or a difference from it.
enum class ThresholdMode : std::uint8_t { relative, absolute };

/// The arguments of reduce_lr_on_plateau, with the defaults of torch.optim.lr_scheduler.ReduceLROnPlateau.
struct PlateauRules {
  Better mode = Better::lower;
  double factor = 0.1;         ///< of each reduction
  std::int64_t patience = 10;  ///< evaluations without improvement that change nothing
  double threshold = 1e-4;     ///< improvements up to this do not count
  ThresholdMode threshold_mode = ThresholdMode::relative;
  std::int64_t cooldown = 0;  ///< evaluations after a reduction that are not counted
  double min_lr = 0;          ///< the learning rate is not reduced below this
  double eps = 1e-8;          ///< smallest reduction that is made
};

/// What the schedule reduce_lr_on_plateau has seen of a metric.
struct Plateau {
  std::optional<double> best;   ///< best metric so far
  std::int64_t bad = 0;         ///< evaluations in a row without improvement
  std::int64_t cooldown = 0;    ///< evaluations that are still not counted
  std::int64_t reductions = 0;  ///< of the learning rate, so far

  /// Adds the metric of the next evaluation; NaN is no improvement.
  void add(const PlateauRules& rules, double metric);
};

/// A learning rate after so many reductions.
double reduced_rate(const PlateauRules& rules, double rate, std::int64_t reductions);

}  // namespace qtrain
