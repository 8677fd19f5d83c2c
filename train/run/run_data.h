#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/run/run_context.h"
#include "train/setup/step_plan.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// The rows of a run, the loaders that batch them, and how they are divided into optimizer steps.
struct RunData {
  TextFolder text;            ///< without a tokenizer
  std::string template_date;  ///< empty: the template has no clock
  Dataset train, evaluation;
  std::unique_ptr<Loader> train_loader, evaluation_loader;  ///< of these rows
  StepPlan plan;
};

/// Prepares the rows of a config and says what there is to know of them. Where the chat template writes the date, a run
/// that goes on from `checkpoints` has the rows of its first day. A usage error for a config without training rows.
std::unique_ptr<RunData> load_run_data(const RunContext& run, const std::vector<std::filesystem::path>& checkpoints);
/// Batches of its rows, and steps of those, as the config says; for a config that says otherwise, instead of those
/// there.
void make_batches(RunData& data, const RunContext& run);

}  // namespace qtrain
