#pragma once
#include "model/config_reader.h"
#include "model/model_config.h"

namespace qtrain {

/// Reads the rotary embedding of a config.json that has only one: `rope_parameters` (version 5) or `rope_scaling`
/// (version 4), with `rope_theta` inside or outside. Throws an input error for separate tables per kind of layer.
RopeConfig read_rope(const ConfigReader& fields, const ModelConfig& config);

/// Reads a table of rotary parameters; `theta` is the default of rope_theta.
RopeConfig read_rope_table(const ConfigReader& table, const ModelConfig& config, double theta);

}  // namespace qtrain
