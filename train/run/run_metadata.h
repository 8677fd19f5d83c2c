#pragma once
#include "core/formats/json.h"
#include "train/run/run_context.h"
#include "train/run/run_data.h"
#include "train/setup/model_setup.h"

namespace qtrain {

/// What a run depends on besides its config (`provenance`), and the part that a resume compares (`run_identity`).
struct RunMetadata {
  Json provenance, identity;
};

/// Hashes the files that the run starts from.
RunMetadata run_metadata(const RunContext& run, const RunData& data, const ModelSetup& setup);

/// Contents of resolved_config.json: the config with the values in force, the keys without effect, and under "run" the
/// provenance, working directory, seeds and rows.
Json resolved_config(const RunContext& run, const RunData& data, const Json& provenance);

}  // namespace qtrain
