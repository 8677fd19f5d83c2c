#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "data/token_rows.h"
#include "model/model_config.h"
#include "train/setup/step_plan.h"

namespace qtrain {

/// What is said about a config beside its model: 16-bit GEMMs of another kind than those it was trained with, a
/// learning rate far from what an adapter wants.
std::vector<std::string> model_advice(const Config& config, const ModelConfig& model);

/// What only the rows show: a max_length far above their lengths, steps that do not match their number.
std::vector<std::string> data_advice(const ResolvedConfig& config, const DatasetStatistics& rows, const StepPlan& plan);

}  // namespace qtrain
