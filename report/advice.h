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

/// Warnings about rows that are lost for learning: many truncated rows, rows left out or kept without a target.
std::vector<std::string> rows_advice(const DataSection& data, const DatasetStatistics& rows);

/// Warnings that depend on the training rows: those of rows_advice, max_length far above the rows' lengths, or numbers
/// of steps that do not match the number of rows.
std::vector<std::string> data_advice(const ResolvedConfig& config, const DatasetStatistics& rows, const StepPlan& plan);

}  // namespace qtrain
