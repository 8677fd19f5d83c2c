#pragma once
#include <cstdint>
#include <vector>

#include "core/context.h"
#include "model/model_config.h"

namespace qtrain {

/// Inverse frequencies [R/2] for the R rotated elements of a head, and the factor on cos and sin, as transformers'
/// modeling_rope_utils computes them (YaRN: Peng et al. 2023; LongRoPE: Ding et al. 2024). `longest` is the length of
/// the batch's longest sequence in tokens; only dynamic NTK and LongRoPE depend on it.
struct RopeFrequencies {
  std::vector<double> inv_freq;
  double attention_factor = 1;
  /// The factor grows with the position: see RopeConfig::length_scale.
  double length_scale = 0, original_max_position = 1;

  double factor_at(std::int64_t position) const;
};
RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t longest);

/// A key that is equal for lengths with the same frequencies.
std::int64_t rope_state(const RopeConfig& rope, std::int64_t longest);

/// cos and sin [positions, R/2] of every angle; angles are in f32 as in transformers (f64 for f64 tables).
struct RopeTables {
  Tensor cos, sin;
};
void fill_rope_tables(Ctx& ctx, const RopeFrequencies& f, const RopeTables& tables);

}  // namespace qtrain
