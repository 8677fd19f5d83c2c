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

/// The model of a run with what trains and evaluates it, in memory that was planned for them.
struct RunModel {
  std::unique_ptr<RankKeys> keys = {};           ///< where ranks share tokens; the model refers to it
  std::unique_ptr<ShardRanks> shard_ranks = {};  ///< where they divide states
  ModelSetup setup;
  MemoryPlan memory;
  std::unique_ptr<Optimizer> optimizer = {};
  std::unique_ptr<TrainStep> step = {};
  std::unique_ptr<Evaluator> evaluator = {};  ///< none where there is nothing to evaluate on
  SamplePrompts samples = {};                 ///< to be answered at each evaluation
};

/// Declares the model of a config and says what there is to know of it. Errors: those of set_up_model, and for rows
/// with ids beyond its vocabulary.
ModelSetup declare_run_model(const RunContext& run, const RunData& data);

/// Takes all memory that the run needs: it is there before the first step, or the error says what does not fit.
RunModel allocate_run_model(const RunContext& run, const RunData& data, ModelSetup declared);

/// transformers' estimate of forward and backward for one token: 6 for each weight that is no embedding's, an adapter's
/// included.
double flos_per_token(Transformer& model);

}  // namespace qtrain
