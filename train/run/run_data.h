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
  TextFolder text;            ///< without its tokenizer
  std::string template_date;  ///< empty: the template does not use the date
  Dataset train, evaluation;
  std::unique_ptr<Loader> train_loader, evaluation_loader;  ///< over `train` and `evaluation`
  StepPlan plan;
};

/// Prepares the rows of a config and logs what the user should know about them. If the chat template writes the date, a
/// run resumed from `checkpoints` keeps the rows of its first day. Throws ErrorKind::usage if the config has no
/// training rows.
std::unique_ptr<RunData> load_run_data(const RunContext& run, const std::vector<std::filesystem::path>& checkpoints);
/// Creates the loaders and the step plan from the config; call it again after the config has changed.
void make_batches(RunData& data, const RunContext& run);

}  // namespace qtrain
