#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/json.h"

namespace qtrain {

/// The logged values of one number; all vectors have one entry per finite value.
struct Curve {
  std::vector<double> steps, values;
  std::vector<double> seconds;  ///< since the first row of the run
  std::vector<double> tokens;   ///< trained on so far
  std::int64_t not_finite = 0;

  std::size_t size() const { return steps.size(); }
};

/// The curve reduced to at most `most` points (at least 4): keeps the first and the last point, and the least and the
/// greatest value of each stretch.
Curve thinned(const Curve& curve, std::size_t most);

/// The key of a run's totals that says why it ended before its last step.
inline constexpr const char* kEndedEarly = "ended_early";

/// How a run ended, or whether it is still running.
enum class RunStatus : std::uint8_t {
  running,  ///< a process writes to its folder
  done,
  stopped,
  failed,
  unfinished,  ///< ended without a message, for example killed
};
std::string_view name_of(RunStatus status);

/// A run as recorded in the files of its output directory. Missing or damaged files are listed in `missing`.
struct RunRecord {
  struct Message {
    std::string level;  ///< "warning" or "error"
    std::string text;
    std::optional<std::int64_t> step = {};  ///< empty before the first step
  };
  struct Sample {
    std::int64_t step = 0;
    std::string prompt, completion;
    std::string finish_reason = {};
  };

  std::filesystem::path folder;
  RunStatus status = RunStatus::unfinished;
  std::string end = {};  ///< message about the end
  std::int64_t step = 0, rows = 0;
  std::optional<std::int64_t> max_steps = {};
  double begun = 0, last_row = 0;             ///< seconds since the Unix epoch; 0 if unknown
  double seconds = 0, tokens = 0;             ///< of all logged rows
  std::map<std::string, Curve> curves = {};   ///< by the keys of metrics.jsonl
  std::map<std::string, double> phases = {};  ///< seconds by phase
  Json totals = Json::object();               ///< train_results.json
  Json resolved = Json::object();             ///< resolved_config.json
  std::vector<Message> messages = {};
  std::vector<Sample> samples = {};
  std::vector<std::string> missing = {};

  const Curve* curve(const std::string& key) const;
  /// Planned bytes by component; null if unknown.
  Json memory_plan() const;
};

/// Whose run is read: this process's run has ended, another one may still be running.
enum class RunOf : std::uint8_t { others, this_process };
/// Throws ErrorKind::input if `folder` is not a folder or has no files of a run.
RunRecord read_run(const std::filesystem::path& folder, RunOf whose = RunOf::others);

}  // namespace qtrain
