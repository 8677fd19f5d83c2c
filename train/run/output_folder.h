#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/output_lock.h"

namespace qtrain {

/// The output directory of a run and what earlier runs have left there: its checkpoints, its final model, and what
/// interruptions cut off. Locked as long as this lives.
class OutputFolder {
 public:
  /// Makes the directory, and owns it if this rank leads; others change nothing there. Errors: those of OutputLock.
  enum class Role : std::uint8_t { leads, follows };
  OutputFolder(std::filesystem::path folder, Role role, Log& log);
  const std::filesystem::path& path() const { return path_; }
  /// Whether a checkpoint lies here.
  bool holds(const std::filesystem::path& checkpoint) const;

  /// Clears what interruptions have left, and finds where a run may go on from. `resume`: "auto" (the newest checkpoint
  /// here, else start), "never", or a checkpoint.
  ResumeFrom resume_from(const std::string& resume) const;
  /// The checkpoints of an earlier run get another name.
  void start_over() const;
  /// The same of those of later steps: the steps behind the checkpoint that was asked for are done anew, and no run
  /// goes on from those of before.
  void set_aside_after(std::int64_t step) const;

  /// Where a run begins: the step, and the checkpoint that it goes on from, if any.
  struct Start {
    std::int64_t step = 0;
    std::optional<std::filesystem::path> resumed = {};
  };
  /// A final model that lies here is what this run has come to only where the run goes on behind it; else it loses its
  /// manifest.
  void disown_result(const Start& start) const;

 private:
  void warn_of_unsealed() const;

  std::filesystem::path path_;
  Log& log_;
  std::optional<OutputLock> lock_;  ///< of the rank that leads
};

}  // namespace qtrain
