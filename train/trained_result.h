#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/config/config.h"

namespace qtrain {

/// What is measured of a config: what it begins with, or what it has trained.
struct Measured {
  enum class Kind : std::uint8_t { start, adapter, result, checkpoint };
  Kind kind = Kind::start;
  std::string model;                          ///< folder of the weights
  std::optional<std::string> adapter = {};    ///< on them
  std::vector<std::string> passed_over = {};  ///< what output_dir holds and is not measured, with the reason

  /// "the adapter in out, the result of this config, on models/base".
  std::string describe() const;
  std::string_view kind_name() const;
};

/// What the user asked for; neither: the result.
struct MeasureChoice {
  std::optional<std::string> adapter = {};
  bool start = false;
};

/// The final model or adapter in output_dir where it is of this config, else the newest whole checkpoint, else what the
/// config begins with.
Measured choose_measured(const Config& config, const MeasureChoice& choice);

/// The config with that model in the place of its own; rows are made as before.
Config config_of(const Config& config, const Measured& measured);

}  // namespace qtrain
