#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/log.h"
#include "plan/ways_to_fit.h"

namespace qtrain {

struct TuneOptions {
  std::int64_t steps = 3;    ///< optimizer steps that are measured of each trial, after one or two that are not
  std::int64_t trials = 16;  ///< at most
};

/// A config that does the same with other micro-batches, recomputation or places of memory.
struct Trial {
  std::vector<KeyChange> changes;  ///< empty: the config as it is
  MicroBatching micro_batching;
  RecomputePolicy recompute;
  std::string offload;      ///< what is on the host: a key; empty: nothing
  std::size_t planned = 0;  ///< bytes
  bool fits = false;
  std::int64_t number = 0;                  ///< of those that were tried, from 1; 0: it was not
  Ranged<double> predicted = {};            ///< tokens a second
  std::optional<std::size_t> measured;      ///< bytes; none: it was not tried
  std::optional<double> tokens_per_second;  ///< in the median of its steps
  bool given_up = false;                    ///< after fewer steps: others are faster
};

/// What trials have shown.
struct Tuning {
  TargetDevice target;
  std::vector<Trial> trials;  ///< all that was planned: the config as it is first
  std::optional<std::size_t> own, best;
  bool stopped = false;        ///< a stop came before the last one
  std::vector<WayToFit> ways;  ///< where nothing fits

  /// How many times as fast the best is as the config as it is; none where that does not fit.
  std::optional<double> speedup() const;
};

/// Measures steps of a config with other micro-batches of as many rows an update, recompute policies and, on a GPU,
/// what is kept on the host: first each micro-batch by the plan that is predicted to be fastest, then the other plans
/// of the best. Only what fits by plan is tried. Writes nothing but the token cache. The config as it is stays the best
/// unless another is over 2 % faster.
Tuning tune(const ResolvedConfig& config, const TuneOptions& options, Log& log);

}  // namespace qtrain
