#include "app/reproduction/logged_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/os/file.h"
#include "core/sha256.h"
#include "core/version.h"
#include "report/run_record.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/evaluation_course.h"

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

// Whether a value is one that runs log as a measurement: a number, or a list or an object of numbers.
bool is_amount(const Json& value) {
  if (value.is_structured()) return std::ranges::all_of(value, is_amount);
  return value.is_number() || value.is_null();
}

// Rows of metrics.jsonl have this key in addition to those of the history.
constexpr const char* kLossScale = "loss_scale";
constexpr const char* kTotalsKey = "train_runtime";                                 // only the row of totals has it
constexpr std::string_view kPerRank = "rank_seconds";                               // a list with a number per rank
constexpr std::array<std::string_view, 2> kTotalsObjects{"memory", "cuda_graphs"};  // objects of numbers

bool is_totals_object(std::string_view key) {
  return std::ranges::find(kTotalsObjects, key) != kTotalsObjects.end();
}

// Whether a row of a step in metrics.jsonl may have this value although the log history does not.
bool is_only_measured(std::string_view key, const Json& value) {
  if (key == kLossScale) return value.is_number();
  return is_measured(key) && is_amount(value) && (!value.is_structured() || (key == kPerRank && value.is_array()));
}

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
    if (!row.contains(key) && !is_only_measured(key, value)) return false;
  return has_all_of(metric, row);
}

bool is_totals(const Json& row) {
  return std::ranges::all_of(row.items(), [](const auto& item) {
    const std::string& key = item.key();
    if (key == kEndedEarly) return item.value().is_string();
    if (is_totals_object(key) || key == "total_flos" || key == "train_loss" || key == "epoch" || key == "step")
      return is_amount(item.value());
    return is_only_measured(key, item.value());
  });
}

Json totals_of(const Json& rows) {
  Json totals = Json::array();
  for (const Json& row : rows)
    if (row.contains(kTotalsKey)) totals.push_back(row);
  return totals;
}

// Whether the objects in a row of totals have the same members as those of the result.
bool has_same_objects(const Json& metric, const Json& results) {
  return std::ranges::all_of(kTotalsObjects, [&](std::string_view key) {
    return form_of(metric.value(key, Json())) == form_of(results.value(key, Json()));
  });
}

// The last totals must match the log history and the other records of the result. Earlier totals are those of results
// that it replaced.
std::string totals_difference(const Json& metrics, const Json& history, const Json& results) {
  const Json totals = totals_of(metrics), logged = totals_of(history);
  for (const Json& row : totals)
    if (!is_totals(row)) return fmt::format("has {}, which is not a valid row of totals", dump_json(row));
  if (logged.empty()) return "";
  if (totals.empty() || !has_all_of(totals.back(), logged.back()))
    return fmt::format("has {}, but the log history has {}", totals.empty() ? "nothing" : dump_json(totals.back()),
                       dump_json(logged.back()));
  if (totals.back().value(kEndedEarly, Json()) != results.value(kEndedEarly, Json()))
    return fmt::format("has {}, but {} gives another reason for the end", dump_json(totals.back()), kTrainResults);
  if (!has_same_objects(totals.back(), results))
    return fmt::format("has {}, but the measurements in {} have other names", dump_json(totals.back()), kTrainResults);
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
    if (!is_row(row) || dump_json(row) != line)
      fail(ErrorKind::input, {.cause = "a line is not a logged row", .place = file.string()});
    rows.push_back(std::move(row));
  }
  return rows;
}

// Rows that were logged after a result: only a run that goes on has them, and none are totals before its next result.
std::string later_rows_problem(std::string_view text, const fs::path& metrics, bool goes_on) {
  if (!goes_on && !text.empty())
    return fmt::format("has {} more bytes than when the result was saved, but the run did not go on", text.size());
  for (const Json& row : rows_in(text, metrics))
    if (row.contains(kTotalsKey)) return fmt::format("has {}, but no later result was saved", dump_json(row));
  return "";
}

// Checks metrics.jsonl against the length and hash that the result recorded. It has grown since if the run goes on.
std::string seal_problem(const fs::path& metrics, const SealedState& result, bool goes_on) {
  const Json results = read_json(result.folder / kTrainResults), seal = results.value(kMetricsSeal, Json());
  if (!seal.is_object() || !seal.value("bytes", Json()).is_number_unsigned() ||
      !seal.value("sha256", Json()).is_string())
    return fmt::format("{} does not record its length and SHA-256", kTrainResults);
  const std::string text = read_text(metrics);
  const auto bytes = seal["bytes"].get<std::uint64_t>();
  const std::string_view sealed = std::string_view(text).substr(0, bytes);
  if (bytes > text.size() || sha256_of(sealed) != seal["sha256"])
    return fmt::format("its SHA-256 does not match the one in {}: one of the two files was changed", kTrainResults);
  if (!sealed.empty() && !sealed.ends_with('\n')) return "was incomplete when the result was saved";
  const Json rows = rows_in(sealed, metrics);
  for (const Json& row : rows)
    if (row["step"] > result.step)
      return fmt::format("has {}, but the result is from step {}", dump_json(row), result.step);
  const Json history = read_json(result.folder / kTrainerState).value("log_history", Json::array());
  const std::string problem = totals_difference(rows, history, results);
  return problem.empty() ? later_rows_problem(std::string_view(text).substr(bytes), metrics, goes_on) : problem;
}

// The reason for an early end follows from the logged evaluations and the recorded config, unless the latter is that of
// a run that goes on.
std::string reason_problem(const RecordedRun& run, const SealedState& result) {
  const Json reason = read_json(result.folder / kTrainResults).value(kEndedEarly, Json());
  const EvaluationCourse course = recorded_course(run.values, history_of(result.folder));
  const Json last = run.run.value("max_steps", Json());
  const bool early = course.ends_run() && last.is_number_integer() && result.step < last;
  const Json expected = early ? Json(course.reason()) : Json();
  if (reason == expected || (run.version != kVersion && reason.is_null() == expected.is_null())) return "";
  return fmt::format("{} gives {} as the reason for an early end, but by the logged evaluations it is {}",
                     kTrainResults, dump_json(reason), dump_json(expected));
}

std::string metrics_problem(const RecordedRun& run, const std::vector<SealedState>& states) {
  const fs::path file = run.output / kMetrics;
  try {
    const Json metrics = read_metrics(file);
    const auto result = std::ranges::find(states, run.output, &SealedState::folder);
    std::string problem = result == states.end() ? totals_difference(metrics, Json::array(), {})
                                                 : seal_problem(file, *result, states.back().step > result->step);
    if (problem.empty() && result != states.end() && states.back().step == result->step)
      problem = reason_problem(run, *result);
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

bool is_logged_loss(const Json& history, const Json& loss, const Json& step) {
  return history.is_array() && std::ranges::any_of(history, [&](const Json& row) {
           return row.is_object() && row.value("eval_loss", Json()) == loss &&
                  (step.is_null() || row.value("step", Json()) == step);
         });
}

std::string repeated_rows_difference(const Json& sealed, const Json& again, std::int64_t first, std::int64_t last) {
  const auto rows_between = [&](const Json& all) {
    Json rows = rows_of_steps(all);
    std::erase_if(rows.get_ref<Json::array_t&>(),
                  [&](const Json& row) { return row["step"] < first || row["step"] > last; });
    return rows;
  };
  const auto without_measurements = [](Json row) {
    for (const std::string_view key : kMeasured) row.erase(std::string(key));
    return row;
  };
  const Json was = rows_between(sealed), is = rows_between(again);
  std::size_t next = 0;
  for (const Json& row : was) {
    const std::size_t expected = next;
    const auto differs = [&] { return without_measurements(row) != without_measurements(is[next]); };
    while (next < is.size() && differs()) ++next;
    if (next++ == is.size())
      return fmt::format("has {}, but repeating the steps gives {}", dump_json(row), logged_row_text(is, expected));
  }
  return "";
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
