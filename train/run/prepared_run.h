#pragma once
#include <memory>
#include <string>

#include "optim/schedule.h"
#include "train/run/output_folder.h"
#include "train/run/run_data.h"
#include "train/run/run_metadata.h"
#include "train/run/run_model.h"

namespace qtrain {

/// Everything that a run needs before its first step except weights and state.
struct PreparedRun {
  ResumeFrom from;
  std::unique_ptr<RunData> data;
  Schedule schedule;
  RunModel model;
  RunMetadata metadata;
};

/// Prepares rows, model and memory, and logs what the user should know about them. `resume`: see
/// OutputFolder::resume_from. Throws every error that can be detected before training starts.
PreparedRun prepare_run(const RunContext& run, const OutputFolder& output, const std::string& resume);

}  // namespace qtrain
