#pragma once
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "report/run_record.h"

namespace qtrain {

/// The figures that a run has come to; what is unknown is null: name, folder, state, step, max_steps, loss, eval_loss,
/// best_eval_loss, best_eval_step, tokens, tokens_per_second, seconds, peak_memory_mb, planned_memory_mb.
Json figures_of(const RunRecord& run);

/// Config keys whose values differ among runs: {key: [value of each run, null where it is unknown]}.
Json differences(const std::vector<RunRecord>& runs);

/// Names of runs that tell them apart: those of their folders, or the whole paths.
std::vector<std::string> names_of(const std::vector<RunRecord>& runs);

/// One HTML page on these runs, at least one, below 2 MB, that loads nothing else: the template of
/// report/page/ with the data as JSON in it, which its script shows as text.
std::string report_page(const std::vector<RunRecord>& runs);

}  // namespace qtrain
