#pragma once
#include <filesystem>
#include <string>

#include "config/config.h"
#include "core/context.h"
#include "core/log.h"
#include "dist/collective.h"
#include "report/prometheus.h"
#include "report/start_phases.h"

namespace qtrain {

/// Collects config keys that turn out to have no effect for the model or device of a run.
class IgnoredKeys {
 public:
  IgnoredKeys(const ResolvedConfig& config, Log& log) : config_(config), log_(log) {}
  /// Does nothing if the key was not given.
  void add(const std::string& key, const std::string& reason);
  /// {key: {"value", "origin", "reason"}}.
  const Json& json() const { return keys_; }

 private:
  const ResolvedConfig& config_;
  Log& log_;
  Json keys_ = Json::object();
};

/// The config, device and ranks of a run, which its parts share; owns nothing.
struct RunContext {
  const ResolvedConfig& config;
  Ctx& ctx;
  Log& log;
  IgnoredKeys& ignored;
  StartPhases& phases;
  Collective& ranks;
  Collective& sharing;                       ///< ranks that share the tokens of this rank's micro-batches
  PrometheusEndpoint* prometheus = nullptr;  ///< on the leading rank, if configured

  const TrainingSection& training() const { return config.value.training; }
  std::filesystem::path output_dir() const { return training().output_dir; }
  /// Whether this is the rank that writes the output directory.
  bool leads() const { return ranks.rank() == 0; }
  /// Number of ranks (or groups sharing tokens) with micro-batches of their own, and the index of this one.
  int data_ranks() const { return ranks.size() / sharing.size(); }
  int data_rank() const { return ranks.rank() / sharing.size(); }
  /// Whether any rank was asked to stop. Collective: every rank must call it at the same points.
  bool stop_requested() const;
  /// Commits the run to finishing: true if no rank was asked to stop before. A later stop is told that the model is
  /// being saved. Collective.
  bool finish_unless_stopped() const;
  /// Whether gradients are those of the loss times a scale (float16).
  bool scales_loss() const { return ctx.matmul() == MatmulPrecision::f16; }
};

}  // namespace qtrain
