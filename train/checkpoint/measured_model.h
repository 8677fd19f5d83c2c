#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace qtrain {

/// The model that a command such as `eval` measures for a config: its base model, or what it trained.
struct Measured {
  enum class Kind : std::uint8_t { start, adapter, result, checkpoint };
  Kind kind = Kind::start;
  std::string model;                          ///< folder of the base weights or the full model
  std::optional<std::string> adapter = {};    ///< applied to `model`
  std::vector<std::string> passed_over = {};  ///< what output_dir contains but is not measured, each with the reason
  /// Values that affect the result and differ between the run and the config: "dataset_name = [...], the config says
  /// ...".
  std::vector<std::string> other_settings = {};
  std::string beside = {};  ///< for a checkpoint: why it is measured instead of the result

  /// For example "the adapter in out, the result of this config, on models/base".
  std::string describe() const;
  std::string_view kind_name() const;
};

/// What the user asked for; by default, the result.
struct MeasureChoice {
  std::optional<std::string> adapter = {};
  bool start = false;
};

/// Chooses the final model or adapter in output_dir, or a later checkpoint, if it is undamaged and of the kind that the
/// config trains; otherwise the newest undamaged checkpoint, otherwise the model that the config starts from.
Measured choose_measured(const ResolvedConfig& config, const MeasureChoice& choice);

/// The config with its model replaced by the measured one; rows are prepared as before.
Config config_of(const Config& config, const Measured& measured);

}  // namespace qtrain
