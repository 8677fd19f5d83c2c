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

/// What a run has logged of one number; all vectors have one entry for each finite value.
struct Curve {
  std::vector<double> steps, values;
  std::vector<double> seconds;  ///< since the run's first row
  std::vector<double> tokens;   ///< trained on so far
  std::int64_t not_finite = 0;

  std::size_t size() const { return steps.size(); }
};

/// A curve of at most `most` points (at least 4): of points in a row the least and the largest value stay, and the
/// first and the last point.
Curve thinned(const Curve& curve, std::size_t most);

/// How a run ended, or that it has not.
enum class RunStatus : std::uint8_t {
  running,  ///< a process writes to its folder
  done,
  stopped,
  failed,
  unfinished,  ///< it ended without a word, as one that was killed
};
std::string_view name_of(RunStatus status);

/// What the files of an output directory say of its run. Whatever is missing or damaged is named and left out.
struct RunRecord {
  struct Message {
    std::string level;  ///< "warning" or "error"
    std::string text;
    std::optional<std::int64_t> step = {};  ///< none: before the first
  };
  struct Sample {
    std::int64_t step = 0;
    std::string prompt, completion;
    std::string finish_reason = {};
  };

  std::filesystem::path folder;
  RunStatus status = RunStatus::unfinished;
  std::string end = {};  ///< what was said of it
  std::int64_t step = 0, rows = 0;
  std::optional<std::int64_t> max_steps = {};
  double begun = 0, last_row = 0;             ///< seconds since 1970; 0: unknown
  double seconds = 0, tokens = 0;             ///< of all that is logged
  std::map<std::string, Curve> curves = {};   ///< by the keys of metrics.jsonl
  std::map<std::string, double> phases = {};  ///< seconds by what they went into
  Json totals = Json::object();               ///< train_results.json
  Json resolved = Json::object();             ///< resolved_config.json
  std::vector<Message> messages = {};
  std::vector<Sample> samples = {};
  std::vector<std::string> missing = {};

  const Curve* curve(const std::string& key) const;
  /// Bytes by component, as planned; null where that is unknown.
  Json memory_plan() const;
};

/// Whose run it is that is read: one of this process has ended, another one may go on.
enum class RunOf : std::uint8_t { others, this_process };
/// Errors (ErrorKind::input): not a folder, or one without any file of a run.
RunRecord read_run(const std::filesystem::path& folder, RunOf whose = RunOf::others);

}  // namespace qtrain
