#pragma once
#include <vector>

#include "config/config.h"

namespace qtrain {

/// Sets the values that follow from others (bf16 from fp16, eval_steps from logging_steps, paths with ~, ...).
void complete_config(ResolvedConfig& config);

/// Combinations of values that mean nothing, one entry each.
std::vector<ErrorText> contradictions(const ResolvedConfig& config);

/// {key: value} of all fields.
Json values_json(const Config& config);

/// {key: value} of the fields that decide what is made of a row.
Json rows_json(const DataSection& section);

}  // namespace qtrain
