#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "optim/schedule.h"
#include "train/checkpoint/run_state.h"
#include "train/run/output_folder.h"
#include "train/run/run_context.h"
#include "train/run/run_data.h"
#include "train/run/run_metadata.h"
#include "train/run/run_model.h"

namespace qtrain {

/// A training run: owns the data, model and state that its parts share, and refers to the config, device and ranks of
/// its context. Weights and state change from step to step.
struct Run : RunContext {
  std::shared_ptr<RunData> data;  ///< trials of a tuning share it
  Schedule schedule;
  RunModel model;
  RunMetadata metadata;
  ResumeFrom from;  ///< where its weights and state come from
  RunState state = {};

  const StepPlan& plan() const { return data->plan; }
  /// Whether its evaluations have ended it before its last step.
  bool ended_early() const { return state.evaluations.ends_run() && state.step < plan().max_steps; }
  /// What a checkpoint of this run saves and restores. Refers to this run.
  TrainingObjects objects();
};

/// Prepares everything that a run needs before its first step except weights and state, and logs what the user should
/// know about it. `resume`: see OutputFolder::resume_from. Throws every error that can be detected before training
/// starts.
Run prepare_run(const RunContext& context, const OutputFolder& output, const std::string& resume);

}  // namespace qtrain
