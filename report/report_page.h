#pragma once
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "report/run_record.h"

namespace qtrain {

/// Summary of a run, null where unknown: folder, state, step, max_steps, loss, eval_loss, best_eval_loss,
/// best_eval_step, tokens, tokens_per_second, seconds, peak_memory_mb, peak_rss_mb, planned_memory_mb.
Json figures_of(const RunRecord& run);

/// Config keys whose values differ between runs: {key: [value of each run, or null if unknown]}.
Json differences(const std::vector<RunRecord>& runs);

/// Distinct names of the runs: their folders' names, or as much of the paths as is needed.
std::vector<std::string> names_of(const std::vector<RunRecord>& runs);

/// A self-contained HTML page below 2 MB about one or more runs: the template of report/page/ with the data as JSON,
/// which the page's script shows as text.
std::string report_page(const std::vector<RunRecord>& runs);

}  // namespace qtrain
