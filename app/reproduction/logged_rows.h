#pragma once
#include <filesystem>
#include <vector>

#include "app/reproduction/sealed_run.h"

namespace qtrain {

/// A document without the amounts that differ whenever the same steps are done: times, speeds, memory. That amounts
/// stand there, and what they are of, stays in it.
Json without_amounts(Json document);

/// The rows of a log_history or of metrics.jsonl that are not the totals of a run.
Json rows_of_steps(const Json& rows);

/// All rows of a metrics.jsonl. Errors (ErrorKind::input): a line is no such row.
Json read_metrics(const std::filesystem::path& file);

/// Holds the logged rows against each other: those of a state are the first of those of the next, and metrics.jsonl has
/// the same, with the hash that the result has of it.
void check_logged_rows(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v);

}  // namespace qtrain
