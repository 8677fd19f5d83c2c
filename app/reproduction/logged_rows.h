#pragma once
#include <filesystem>
#include <vector>

#include "app/reproduction/sealed_run.h"

namespace qtrain {

/// A document without the values that differ each time the same steps run: times, speeds, memory. Keeps their keys and
/// units.
Json without_amounts(Json document);

/// The rows of a log_history or metrics.jsonl, without the totals of a run.
Json rows_of_steps(const Json& rows);

/// All rows of a metrics.jsonl. Throws ErrorKind::input if a line is not a logged row.
Json read_metrics(const std::filesystem::path& file);

/// Whether an evaluation, at `step` unless that is null, gave this loss according to a log_history.
bool is_logged_loss(const Json& history, const Json& loss, const Json& step);

/// How the rows of steps `first` to `last` in a metrics.jsonl differ from those that repeating the steps gave, apart
/// from measurements; empty: they do not, or one of the two has more rows, which the log history shows too.
std::string repeated_rows_difference(const Json& sealed, const Json& again, std::int64_t first, std::int64_t last);

/// Checks that the logged rows agree: the history of each state begins with that of the state before it, and
/// metrics.jsonl has the same rows and the hash that the result records.
void check_logged_rows(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v);

}  // namespace qtrain
