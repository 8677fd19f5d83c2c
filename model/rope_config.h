#pragma once
#include "model/config_reader.h"
#include "model/model_config.h"

namespace qtrain {

/// The one rotary embedding of a config.json: `rope_parameters` (version 5) or `rope_scaling` (version 4), `rope_theta`
/// inside or outside. A table for each kind of layer is an input error.
RopeConfig read_rope(const ConfigReader& fields, const ModelConfig& config);

/// A table of rotary parameters; `theta` is for one without rope_theta.
RopeConfig read_rope_table(const ConfigReader& table, const ModelConfig& config, double theta);

}  // namespace qtrain
