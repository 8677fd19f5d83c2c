#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/output_lock.h"

namespace qtrain {

/// The output directory of a run and what earlier runs left in it: checkpoints, a final model, and leftovers of
/// interruptions. Holds the lock of the directory.
class OutputFolder {
 public:
  /// Creates and locks the directory if this rank leads; other ranks change nothing in it. Throws as OutputLock does.
  enum class Role : std::uint8_t { leads, follows };
  OutputFolder(std::filesystem::path folder, Role role, Log& log);
  const std::filesystem::path& path() const { return path_; }
  /// Whether this checkpoint lies in the directory.
  bool holds(const std::filesystem::path& checkpoint) const;

  /// Cleans up after interruptions and finds the checkpoints that a run may resume from. `resume`: "auto" (the newest
  /// checkpoint here, or a fresh start), "never", or the path of a checkpoint.
  ResumeFrom resume_from(const std::string& resume) const;
  /// Renames the checkpoints of an earlier run out of the way.
  void start_over() const;
  /// Likewise for checkpoints after `step`: a run that resumes from `step` does those steps again, so no later run may
  /// resume from the old ones.
  void set_aside_after(std::int64_t step) const;

  /// Where a run begins: its step, and the checkpoint that it resumes from, if any.
  struct Start {
    std::int64_t step = 0;
    std::optional<std::filesystem::path> resumed = {};
  };
  /// Removes the manifest of a final model in this directory, unless the run resumes at or after that model's step.
  void disown_result(const Start& start) const;

 private:
  void warn_of_unsealed() const;

  std::filesystem::path path_;
  Log& log_;
  std::optional<OutputLock> lock_;  ///< held by the leading rank
};

}  // namespace qtrain
