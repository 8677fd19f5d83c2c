#include "app/reproduction/logged_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/os/file.h"
#include "core/sha256.h"
#include "train/checkpoint/checkpoint.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 24> kMeasured{"time",
                                                     "eval_runtime",
                                                     "eval_samples_per_second",
                                                     "eval_steps_per_second",
                                                     "train_runtime",
                                                     "train_samples_per_second",
                                                     "train_steps_per_second",
                                                     "tokens_per_second",
                                                     "data_wait",
                                                     "data_wait_seconds",
                                                     "step_seconds",
                                                     "startup_seconds",
                                                     "sample_seconds",
                                                     "save_seconds",
                                                     "rank_seconds",
                                                     "slowest_rank",
                                                     "rss_mb",
                                                     "peak_rss_mb",
                                                     "device_mb",
                                                     "memory",
                                                     "cuda_graphs",
                                                     "seconds",
                                                     kConfigDigest,
                                                     kMetricsSeal};

bool is_measured(std::string_view key) {
  return std::ranges::find(kMeasured, key) != kMeasured.end();
}

// The shape of a measurement: its structure, with a placeholder for each amount.
Json form_of(const Json& value) {
  if (!value.is_structured()) return value.is_number() || value.is_null() ? "a number" : "a string";
  Json form = value;
  for (Json& part : form) part = form_of(part);
  return form;
}

// Rows of metrics.jsonl have this key in addition to those of the history.
constexpr const char* kLossScale = "loss_scale";
constexpr const char* kTotalsKey = "train_runtime";  // only the row of totals has it

bool is_row(const Json& row) {
  constexpr std::size_t kMaxKeys = 1000;  // keys are looked up by linear search
  return row.is_object() && row.size() <= kMaxKeys && row.contains("step") && row["step"].is_number_integer();
}

Json history_of(const fs::path& folder) {
  const fs::path file = folder / kTrainerState;
  const Json rows = read_json(file).value("log_history", Json());
  if (!rows.is_array() || !std::ranges::all_of(rows, is_row))
    fail(ErrorKind::input, {.cause = "\"log_history\" is not a list of logged rows", .place = file.string()});
  return rows_of_steps(rows);
}

std::string logged_row_text(const Json& rows, std::size_t i) {
  return i < rows.size() ? dump_json(rows[i]) : "nothing";
}

// The history of each state must begin with the history of the state before it, including times.
void check_histories(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  Json before = Json::array();
  for (std::size_t s = 0; s < states.size(); ++s) {
    const Json now = history_of(states[s].folder);
    for (std::size_t i = 0; i < before.size(); ++i)
      if (i >= now.size() || before[i] != now[i]) {
        v.add(fmt::format("{} of {} and of {}", kTrainerState, name_of(run, states[s - 1].folder),
                          name_of(run, states[s].folder)),
              fmt::format("a logged row changed from {} to {}", logged_row_text(before, i), logged_row_text(now, i)));
        break;
      }
    before = now;
  }
}

bool has_all_of(const Json& metric, const Json& row) {
  for (const auto& [key, value] : row.items())
    if (const auto found = metric.find(key); found == metric.end() || *found != value) return false;
  return true;
}

// Whether a row of metrics.jsonl has every value of the history row and, besides those, only measurements.
bool matches(const Json& metric, const Json& row) {
  for (const auto& [key, value] : metric.items())
    if (!row.contains(key) && !is_measured(key) && key != kLossScale) return false;
  return has_all_of(metric, row);
}

bool is_totals(const Json& row) {
  for (const auto& [key, value] : row.items())
    if (!is_measured(key) && key != "total_flos" && key != "train_loss" && key != "epoch" && key != "step")
      return false;
  return true;
}

Json totals_of(const Json& rows) {
  Json totals = Json::array();
  for (const Json& row : rows)
    if (row.contains(kTotalsKey)) totals.push_back(row);
  return totals;
}

// The last totals must match those in the history of the result. Earlier ones are from results that it replaced.
std::string totals_difference(const Json& metrics, const Json& history) {
  const Json totals = totals_of(metrics), logged = totals_of(history);
  for (const Json& row : totals)
    if (!is_totals(row)) return fmt::format("has {}, which is not a valid row of totals", dump_json(row));
  if (logged.empty()) return "";
  if (totals.empty() || !matches(totals.back(), logged.back()))
    return fmt::format("has {}, but the log history has {}", totals.empty() ? "nothing" : dump_json(totals.back()),
                       dump_json(logged.back()));
  return "";
}

// A run that was resumed from a checkpoint in another folder logged only its later rows here. Rows may be missing only
// from before the first state. Rows after the newest state belong to steps that will run again.
std::string difference_of(const Json& metrics, const Json& history, const std::vector<SealedState>& states) {
  Json rows = rows_of_steps(metrics);
  std::erase_if(rows.get_ref<Json::array_t&>(), [&](const Json& row) { return row["step"] > states.back().step; });
  if (rows.size() > history.size())
    return fmt::format("has {} rows, but the log history has {}", rows.size(), history.size());
  const std::size_t missing = history.size() - rows.size();
  if (missing > 0 && (rows.empty() || history[missing - 1]["step"] >= states.front().step))
    return fmt::format("lacks the first {} of the {} logged rows", missing, history.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (!matches(rows[i], history[missing + i]))
      return fmt::format("has {}, but the log history has {}", dump_json(rows[i]), dump_json(history[missing + i]));
  return "";
}

// A run that was killed may have left an incomplete row at the end.
Json rows_in(std::string_view text, const fs::path& file) {
  Json rows = Json::array();
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (end == text.size() && !Json::accept(line)) break;
    Json row = parse_json(line, file.string());
    if (!is_row(row)) fail(ErrorKind::input, {.cause = "a line is not a logged row", .place = file.string()});
    rows.push_back(std::move(row));
  }
  return rows;
}

// Checks metrics.jsonl, which may have grown since, against the length and hash that the result recorded.
std::string seal_problem(const fs::path& metrics, const SealedState& result) {
  const Json seal = read_json(result.folder / kTrainResults).value(kMetricsSeal, Json());
  if (!seal.is_object() || !seal.value("bytes", Json()).is_number_unsigned() ||
      !seal.value("sha256", Json()).is_string())
    return fmt::format("{} does not record its length and SHA-256", kTrainResults);
  const std::string text = read_text(metrics);
  const auto bytes = seal["bytes"].get<std::uint64_t>();
  const std::string_view sealed = std::string_view(text).substr(0, bytes);
  if (bytes > text.size() || sha256_of(sealed) != seal["sha256"])
    return fmt::format("its SHA-256 does not match the one in {}: one of the two files was changed", kTrainResults);
  for (const Json& row : rows_in(sealed, metrics))
    if (row["step"] > result.step)
      return fmt::format("has {}, but the result is from step {}", dump_json(row), result.step);
  return totals_difference(rows_in(sealed, metrics),
                           read_json(result.folder / kTrainerState).value("log_history", Json::array()));
}

std::string metrics_problem(const RecordedRun& run, const std::vector<SealedState>& states) {
  const fs::path file = run.output / kMetrics;
  try {
    const Json metrics = read_metrics(file);
    const auto result = std::ranges::find(states, run.output, &SealedState::folder);
    std::string problem =
        result == states.end() ? totals_difference(metrics, Json::array()) : seal_problem(file, *result);
    if (problem.empty()) problem = difference_of(metrics, history_of(states.back().folder), states);
    return problem;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return e.text().cause;
  }
}

}  // namespace

Json without_amounts(Json document) {
  if (document.is_object())
    for (auto& [key, value] : document.items()) value = is_measured(key) ? form_of(value) : without_amounts(value);
  if (document.is_array())
    for (Json& part : document) part = without_amounts(std::move(part));
  return document;
}

Json rows_of_steps(const Json& rows) {
  Json kept = Json::array();
  for (const Json& row : rows)
    if (!row.contains(kTotalsKey)) kept.push_back(row);
  return kept;
}

Json read_metrics(const fs::path& file) {
  return rows_in(read_text(file), file);
}

void check_logged_rows(const RecordedRun& run, const std::vector<SealedState>& states, Verification& v) {
  if (states.empty()) return;
  try {
    check_histories(run, states, v);
    v.add(kMetrics, metrics_problem(run, states));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    v.add("logged rows", words_of(e.text()));
  }
}

}  // namespace qtrain
