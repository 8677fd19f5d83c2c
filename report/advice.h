#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "data/token_rows.h"
#include "model/model_config.h"
#include "train/setup/step_plan.h"

namespace qtrain {

/// Warnings about a config and its model: float16 for a model made in bfloat16, or a learning rate that is unusual for
/// an adapter.
std::vector<std::string> model_advice(const Config& config, const ModelConfig& model);

/// Warnings that depend on the rows: max_length far above their lengths, or numbers of steps that do not match the
/// number of rows.
std::vector<std::string> data_advice(const ResolvedConfig& config, const DatasetStatistics& rows, const StepPlan& plan);

}  // namespace qtrain
