#pragma once
#include "core/formats/json.h"
#include "train/run/run_context.h"
#include "train/run/run_data.h"
#include "train/setup/model_setup.h"

namespace qtrain {

/// What a run depends on beside its config (`provenance`), and as a resume compares it (`run_identity`).
struct RunMetadata {
  Json provenance, identity;
};

/// Of the files that the run begins with.
RunMetadata run_metadata(const RunContext& run, const RunData& data, const ModelSetup& setup);

/// resolved_config.json: the config with the values of this run, what has no effect in it, and in "run" its provenance,
/// folder, seeds and rows.
Json resolved_config(const RunContext& run, const RunData& data, const Json& provenance);

}  // namespace qtrain
