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

/// Whether a log_history has an evaluation with this loss, at `step` unless that is null.
bool is_logged_loss(const Json& history, const Json& loss, const Json& step);

/// Says how the rows of steps `first` to `last` in metrics.jsonl differ from those of the repeated steps, apart from
/// measurements. Empty if they agree, or if the numbers of rows differ: comparing the log histories shows that.
std::string repeated_rows_difference(const Json& sealed, const Json& again, std::int64_t first, std::int64_t last);

/// Checks that the logged rows agree: the history of each state begins with that of the state before it, and
/// metrics.jsonl has the same rows and the hash that the result records.
void check_logged_rows(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v);

}  // namespace qtrain
