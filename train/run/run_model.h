#pragma once
#include <memory>

#include "optim/optimizer.h"
#include "plan/memory_plan.h"
#include "train/ranks/rank_keys.h"
#include "train/run/run_context.h"
#include "train/run/run_data.h"
#include "train/setup/model_setup.h"
#include "train/setup/sample_prompts.h"
#include "train/step/evaluate.h"
#include "train/step/step.h"

namespace qtrain {

/// The model of a run and the objects that train and evaluate it, in preplanned memory.
struct RunModel {
  std::unique_ptr<RankKeys> keys = {};  ///< if ranks share tokens; the runner refers to it
  std::unique_ptr<ShardRanks> ranks = {};
  ModelSetup setup;
  MemoryPlan memory;
  std::unique_ptr<Runner> runner = {};
  std::unique_ptr<Optimizer> optimizer = {};
  std::unique_ptr<TrainStep> step = {};
  std::unique_ptr<Evaluator> evaluator = {};  ///< null if there is nothing to evaluate on
  SamplePrompts samples = {};                 ///< answered at each evaluation
};

/// Declares the model of a config and logs what the user should know about it. Throws as set_up_model does, and for
/// rows with token ids beyond its vocabulary.
ModelSetup declare_run_model(const RunContext& run, const RunData& data);

/// Allocates all memory that the run needs before the first step. Throws an error that says what does not fit.
RunModel allocate_run_model(const RunContext& run, const RunData& data, ModelSetup declared);

/// transformers' estimate of the FLOPs of forward and backward per token: 6 per weight, adapters included and
/// embeddings excluded.
double flos_per_token(Transformer& model);

}  // namespace qtrain
