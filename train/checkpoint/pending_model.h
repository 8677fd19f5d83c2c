#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/os/descriptor.h"

namespace qtrain {

/// What a folder is to the command that makes it: behind its result there is nothing to stop (finish_or_stop).
enum class CommitAs : std::uint8_t { result, part };

/// Where a model folder lies that is asked for by this name, which may lead through links and folders that are not
/// there yet. Errors: ErrorKind::usage where a link has no path.
std::filesystem::path model_place(const std::filesystem::path& target);

/// A model folder in the making: it lies under a temporary name until `commit`, and vanishes without it. What a process
/// that was killed has left of the same folder goes first.
class PendingModel {
 public:
  /// `command` is that whose result it is, as `mark_result` notes it. Errors: ErrorKind::disk; also where another
  /// process is writing the same folder.
  PendingModel(const std::filesystem::path& target, std::string command);
  ~PendingModel();
  PendingModel(const PendingModel&) = delete;
  PendingModel& operator=(const PendingModel&) = delete;

  /// Where to write.
  const std::filesystem::path& folder() const { return folder_; }
  /// Gives it its name. In a folder that was there before, files of the same names are replaced, config.json last, and
  /// its other weights removed where this model has some; files beside them stay.
  void commit(CommitAs as = CommitAs::result);

 private:
  void move_into_target() const;

  std::filesystem::path target_, folder_;
  std::string command_;
  bool replaces_;
  Descriptor lock_;
};

}  // namespace qtrain
