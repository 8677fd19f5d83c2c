#include "report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/plural.h"
#include "report/run_messages.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/output_lock.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 10> kCurves{
    "loss",      "eval_loss", "learning_rate", "grad_norm",  "tokens_per_second",
    "device_mb", "rss_mb",    "data_wait",     "loss_scale", "aux_loss"};

/// A key of logged rows that holds the seconds of a phase, and the phase's name.
struct Phase {
  std::string_view key, name;
};
constexpr std::array<Phase, 6> kPhases{{{"startup_seconds", "start-up"},
                                        {"step_seconds", "steps"},
                                        {"data_wait_seconds", "waiting for data"},
                                        {"eval_runtime", "evaluation"},
                                        {"sample_seconds", "samples"},
                                        {"save_seconds", "saving"}}};
constexpr std::array<std::string_view, 5> kFiles{"metrics.jsonl", "trainer_state.json", "resolved_config.json",
                                                 "train_results.json", "samples.jsonl"};

std::optional<double> number_of(const Json& row, std::string_view key) {
  const auto it = row.find(key);
  if (it == row.end() || !it->is_number()) return {};
  const double value = it->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string text_of(const Json& row, std::string_view key) {
  const auto it = row.find(key);
  return it != row.end() && it->is_string() ? it->get<std::string>() : "";
}

std::optional<std::int64_t> step_of(const Json& row) {
  constexpr double kMaxStep = 1e15;
  const std::optional<double> step = number_of(row, "step");
  return step && *step >= 0 && *step < kMaxStep ? std::optional(static_cast<std::int64_t>(*step)) : std::nullopt;
}

/// Reads the files of a run and notes which are missing.
class Reader {
 public:
  explicit Reader(RunRecord& record) : record_(record) {}

  void read() {
    if (const Json results = document("train_results.json"); results.is_object()) record_.totals = results;
    if (const Json resolved = document("resolved_config.json"); resolved.is_object()) record_.resolved = resolved;
    if (record_.resolved.empty())
      miss("resolved_config.json is missing: config, memory plan and environment are unknown");
    read_max_steps();
    const bool logged = lines("metrics.jsonl", [&](const Json& row) { return add_row(row); });
    if (!logged || record_.rows == 0) read_log_history();
    if (record_.rows == 0) miss("no rows were logged, so there are no curves");
    lines("samples.jsonl", [&](const Json& row) { return add_sample(row); });
    lines(kMessages, [&](const Json& row) { return add_message(row); });
    for (const Phase& phase : kPhases)
      if (const auto it = seconds_.find(phase.key); it != seconds_.end())
        record_.phases[std::string(phase.name)] = it->second;
  }

 private:
  void miss(std::string what) { record_.missing.push_back(std::move(what)); }

  Json document(const fs::path& name) {
    const fs::path file = record_.folder / name;
    std::error_code error;
    if (!fs::exists(file, error)) return {};
    try {
      return read_json(file, {.duplicate_keys = true});
    } catch (const Error& e) {
      miss(fmt::format("{} cannot be read: {}", name.string(), e.text().cause));
      return {};
    }
  }

  /// Passes each object of a JSONL file to `take`. Returns false if there is no such file. Ignores a last line without
  /// a newline, which is still being written.
  template <class Take>
  bool lines(const std::string& name, const Take& take) {
    const fs::path file = record_.folder / name;
    std::error_code error;
    if (!fs::exists(file, error)) return false;
    std::int64_t damaged = 0;
    try {
      const MappedFile mapped(file);
      const std::string_view text = mapped.text();
      for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
        const Json row = json_in(text.substr(begin, end - begin));
        if (!row.is_object() || !take(row)) ++damaged;
      }
    } catch (const Error& e) {
      miss(fmt::format("{} cannot be read: {}", name, e.text().cause));
      return false;
    }
    if (damaged > 0) miss(fmt::format("{}: skipped {} that cannot be read", name, counted(damaged, "line")));
    return true;
  }

  void read_max_steps() {
    const auto run = record_.resolved.find("run");
    if (run == record_.resolved.end() || !run->is_object()) return;
    if (const auto steps = number_of(*run, "max_steps"); steps && *steps > 0)
      record_.max_steps = static_cast<std::int64_t>(*steps);
  }

  // Without metrics.jsonl, takes the rows from checkpoints and results.
  void read_log_history() {
    std::vector<fs::path> places{"trainer_state.json"};
    if (const std::vector<fs::path> checkpoints = find_checkpoints(record_.folder); !checkpoints.empty())
      places.push_back(checkpoints.back().filename() / "trainer_state.json");
    for (const fs::path& place : places) {
      const Json state = document(place);
      const auto history = state.is_object() ? state.find("log_history") : state.end();
      if (!state.is_object() || history == state.end() || !history->is_array()) continue;
      for (const Json& row : *history)
        if (row.is_object()) add_row(row);
      miss(fmt::format("metrics.jsonl is missing: rows come from {}, without time, speed and memory", place.string()));
      return;
    }
    miss("metrics.jsonl is missing");
  }

  bool add_row(const Json& row) {
    const std::optional<std::int64_t> step = step_of(row);
    if (!step) return false;
    ++record_.rows;
    record_.step = std::max(record_.step, *step);
    record_.status = row.contains("train_runtime") ? RunStatus::done : RunStatus::unfinished;
    const std::string early = text_of(row, kEndedEarly);
    record_.end = early.empty() ? "" : fmt::format("ended early at step {}: {}", *step, early);
    const double time = number_of(row, "time").value_or(0);
    if (record_.begun == 0) record_.begun = time;
    record_.last_row = std::max(record_.last_row, time);
    const double speed = number_of(row, "tokens_per_second").value_or(0);
    if (const auto tokens = number_of(row, "num_tokens")) {
      if (speed > 0 && *tokens > record_.tokens) record_.seconds += (*tokens - record_.tokens) / speed;
      record_.tokens = std::max(record_.tokens, *tokens);
    }
    for (const Phase& phase : kPhases)
      if (const auto seconds = number_of(row, phase.key); seconds && *seconds >= 0) seconds_[phase.key] += *seconds;
    if (!row.contains("train_runtime")) add_points(row, static_cast<double>(*step), time);
    return true;
  }

  void add_points(const Json& row, double step, double time) {
    for (const std::string_view key : kCurves) {
      if (!row.contains(key)) continue;
      Curve& curve = record_.curves[std::string(key)];
      const std::optional<double> value = number_of(row, key);
      if (!value) {
        ++curve.not_finite;
        continue;
      }
      curve.steps.push_back(step);
      curve.values.push_back(*value);
      curve.seconds.push_back(std::max(time - record_.begun, 0.0));
      curve.tokens.push_back(record_.tokens);
    }
  }

  bool add_sample(const Json& row) {
    const std::optional<std::int64_t> step = step_of(row);
    if (!step) return false;
    record_.samples.push_back({.step = *step,
                               .prompt = text_of(row, "prompt"),
                               .completion = text_of(row, "completion"),
                               .finish_reason = text_of(row, "finish_reason")});
    return true;
  }

  bool add_message(const Json& row) {
    const std::string level = text_of(row, "level"), text = text_of(row, "text");
    if (level.empty()) return false;
    const std::optional<std::int64_t> step = step_of(row);
    const bool ends = level == "stopped" || level == "failed";
    if (ends && step.value_or(0) >= record_.step && record_.status != RunStatus::done) {
      record_.status = level == "failed" ? RunStatus::failed : RunStatus::stopped;
      record_.end = text;
      record_.step = std::max(record_.step, step.value_or(0));
    }
    record_.messages.push_back({.level = level, .text = text, .step = step});
    return true;
  }

  RunRecord& record_;
  std::map<std::string_view, double> seconds_;
};

}  // namespace

std::string_view name_of(RunStatus status) {
  constexpr std::array<std::string_view, 5> kNames{"running", "done", "stopped", "failed", "unfinished"};
  return kNames.at(static_cast<std::size_t>(status));
}

Curve thinned(const Curve& curve, std::size_t most) {
  const std::size_t n = curve.size();
  if (n <= most) return curve;
  std::vector<std::size_t> kept{0};
  const std::size_t parts = (most - 2) / 2;
  for (std::size_t part = 0; part < parts; ++part) {
    const auto begin = curve.values.begin() + static_cast<std::ptrdiff_t>(n * part / parts),
               end = curve.values.begin() + static_cast<std::ptrdiff_t>(n * (part + 1) / parts);
    const auto [least, largest] = std::minmax_element(begin, end);
    for (const auto& it : {std::min(least, largest), std::max(least, largest)})
      kept.push_back(static_cast<std::size_t>(it - curve.values.begin()));
  }
  kept.push_back(n - 1);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  Curve thin{.steps = {}, .values = {}, .seconds = {}, .tokens = {}, .not_finite = curve.not_finite};
  for (const std::size_t i : kept) {
    thin.steps.push_back(curve.steps[i]);
    thin.values.push_back(curve.values[i]);
    thin.seconds.push_back(curve.seconds[i]);
    thin.tokens.push_back(curve.tokens[i]);
  }
  return thin;
}

const Curve* RunRecord::curve(const std::string& key) const {
  const auto it = curves.find(key);
  return it == curves.end() ? nullptr : &it->second;
}

Json RunRecord::memory_plan() const {
  for (const Json* document : {&resolved, &totals}) {
    const bool of_results = document == &totals;
    const auto section = document->find(of_results ? "memory" : "run");
    if (section == document->end() || !section->is_object()) continue;
    const auto plan = section->find(of_results ? "planned" : "memory_plan");
    if (plan != section->end() && plan->is_object()) return *plan;
  }
  return {};
}

RunRecord read_run(const fs::path& folder, RunOf whose) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    fail(ErrorKind::input,
         {.cause = "is not a folder", .place = folder.string(), .remedy = "give the output_dir of a run"});
  if (std::ranges::none_of(kFiles, [&](std::string_view name) { return fs::exists(folder / name, error); }) &&
      find_checkpoints(folder).empty())
    fail(ErrorKind::input,
         {.cause = "no run has written to this folder: it has no metrics.jsonl or other file of a run",
          .place = folder.string(),
          .remedy = "give the output_dir of a run"});
  RunRecord record{.folder = folder};
  Reader(record).read();
  if (whose == RunOf::others && is_locked(folder)) record.status = RunStatus::running;
  return record;
}

}  // namespace qtrain
