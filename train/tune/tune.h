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
  std::int64_t steps = 3;    ///< measured optimizer steps per trial, after one or two warm-up steps
  std::int64_t trials = 16;  ///< upper limit
};

/// A variant of the config with other micro-batches, recomputation or offloading, but the same result.
struct Trial {
  std::vector<KeyChange> changes;  ///< empty: the config as it is
  MicroBatching micro_batching;
  RecomputePolicy recompute;
  std::string offload;      ///< key that offloads something to the host; empty: none
  std::size_t planned = 0;  ///< planned bytes
  bool fits = false;
  std::int64_t number = 0;                  ///< order in which it was tried, from 1; 0: not tried
  Ranged<double> predicted = {};            ///< predicted tokens per second
  std::optional<std::size_t> measured;      ///< allocated bytes; none: not tried
  std::optional<double> tokens_per_second;  ///< median over its steps
  bool given_up = false;                    ///< stopped early because others are faster
};

/// The results of all trials.
struct Tuning {
  TargetDevice target;
  std::vector<Trial> trials;  ///< all planned variants, starting with the config as it is
  std::optional<std::size_t> own, best;
  bool stopped = false;        ///< a stop came before the last trial
  std::vector<WayToFit> ways;  ///< set if nothing fits

  /// Speed of the best variant relative to the config as it is; none if the latter does not fit.
  std::optional<double> speedup() const;
};

/// Measures steps of a config with other micro-batch sizes (same rows per update), recompute policies and, on a GPU,
/// offloading: first each micro-batch size with the plan predicted to be fastest, then the other plans of the best
/// size. Tries only what fits according to the memory plan. Writes nothing but the token cache. The config as it is
/// counts as best unless another one is over 2 % faster.
Tuning tune(const ResolvedConfig& config, const TuneOptions& options, Log& log);

}  // namespace qtrain
