#pragma once
#include "model/config_reader.h"
#include "model/model_config.h"

namespace qtrain {

/// Reads the rotary embedding of a config.json that has only one: `rope_parameters` (version 5) or `rope_scaling`
/// (version 4), with `rope_theta` inside or outside. Throws an input error for separate tables per kind of layer.
RopeConfig read_rope(const ConfigReader& fields, const ModelConfig& config);

/// Reads a table of rotary parameters; `theta` is the default of rope_theta.
RopeConfig read_rope_table(const ConfigReader& table, const ModelConfig& config, double theta);

/// A kind of layer ("full_attention", "sliding_attention") with rotary parameters of its own, and the default of its
/// rope_theta.
struct LayerKind {
  const char* name;
  double theta;
};
/// Reads the table of one kind of layer in `rope_parameters` (version 5). The `rope_scaling` of version 4 applies to
/// full_attention alone.
RopeConfig read_rope_of_kind(const ConfigReader& fields, const ModelConfig& config, const LayerKind& kind);

}  // namespace qtrain
