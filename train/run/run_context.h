#pragma once
#include <string>

#include "config/config.h"
#include "core/context.h"
#include "core/log.h"
#include "dist/collective.h"
#include "report/prometheus.h"
#include "report/start_phases.h"

namespace qtrain {

/// Keys of a config that turn out to have no effect on the model or device of a run.
class IgnoredKeys {
 public:
  IgnoredKeys(const ResolvedConfig& config, Log& log) : config_(config), log_(log) {}
  /// Nothing where the key was not given.
  void add(const std::string& key, const std::string& reason);
  /// {key: {"value", "origin", "reason"}}.
  const Json& json() const { return keys_; }

 private:
  const ResolvedConfig& config_;
  Log& log_;
  Json keys_ = Json::object();
};

/// What the parts of a run share; nothing here is owned.
struct RunContext {
  const ResolvedConfig& config;
  Ctx& ctx;
  Log& log;
  IgnoredKeys& ignored;
  StartPhases& phases;
  Collective& ranks;
  Collective& sharing;                       ///< those that have the same micro-batches and share their tokens
  PrometheusEndpoint* prometheus = nullptr;  ///< where it is asked for, on the rank that leads

  const TrainingSection& training() const { return config.value.training; }
  /// Whether this is the rank that writes the output directory.
  bool leads() const { return ranks.rank() == 0; }
  /// Ranks that have micro-batches of their own, and which of them this one belongs to.
  int data_ranks() const { return ranks.size() / sharing.size(); }
  int data_rank() const { return ranks.rank() / sharing.size(); }
  /// Whether a stop was asked of any rank. Every rank asks at the same places.
  bool stop_requested() const;
  /// The point of no return of the run, asked by every rank at the same place: whether no rank was asked to stop
  /// before.
  bool finish_unless_stopped() const;
  /// In float16 the gradients are those of the loss times a scale.
  bool scales_loss() const { return ctx.matmul() == MatmulPrecision::f16; }
};

}  // namespace qtrain
