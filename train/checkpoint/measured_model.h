#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"

namespace qtrain {

/// What is measured of a config: what it begins with, or what it has trained.
struct Measured {
  enum class Kind : std::uint8_t { start, adapter, result, checkpoint };
  Kind kind = Kind::start;
  std::string model;                          ///< folder of the weights
  std::optional<std::string> adapter = {};    ///< on them
  std::vector<std::string> passed_over = {};  ///< what output_dir holds and is not measured, with the reason
  /// Values of the run that decide its result and are others in the config: "dataset_name = [...], the config says
  /// ...".
  std::vector<std::string> other_settings = {};
  std::string beside = {};  ///< of a checkpoint: why it is measured and not the result

  /// "the adapter in out, the result of this config, on models/base".
  std::string describe() const;
  std::string_view kind_name() const;
};

/// What the user asked for; neither: the result.
struct MeasureChoice {
  std::optional<std::string> adapter = {};
  bool start = false;
};

/// The final model or adapter in output_dir, or a checkpoint there that is of a later step, where it is whole and of
/// such a model and adapter as the config trains; else the newest whole checkpoint, else what the config begins with.
Measured choose_measured(const ResolvedConfig& config, const MeasureChoice& choice);

/// The config with that model in the place of its own; rows are made as before.
Config config_of(const Config& config, const Measured& measured);

}  // namespace qtrain
