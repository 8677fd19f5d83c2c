#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "app/cli/arguments.h"

namespace qtrain {

/// A file for the result of a command: checked before the work begins, and again when the result is ready.
class ResultFile {
 public:
  /// Checks that a command may write its result to a file: there is no such file, it is an earlier result of the same
  /// command, it is a device or FIFO, or --overwrite is given. It also must not be one of `inputs`, nor lie in a folder
  /// among them or in a checkpoint. Throws ErrorKind::usage otherwise.
  ResultFile(const Arguments& args, std::filesystem::path file, const std::vector<std::filesystem::path>& inputs = {});

  /// The file to write to when the result is ready: the same file, or one next to it if another process has created or
  /// changed the file since the check, with a warning.
  std::filesystem::path place_now();
  /// The same for SlowResult, which asks about the target of a link. Valid as long as this object.
  std::function<std::filesystem::path(const std::filesystem::path& file)> name_now();
  /// Called after writing, if another version of the result will follow.
  void written() { found_ = version_of(file_); }

 private:
  /// What distinguishes a file from one that replaced it, or from itself after a change.
  using Version = std::vector<std::int64_t>;
  static Version version_of(const std::filesystem::path& file);

  const Arguments& args_;
  std::filesystem::path file_;
  Version found_;
};

/// The place that a flag names, if it is given.
std::optional<ResultFile> result_file(const Arguments& args, const char* flag,
                                      const std::vector<std::filesystem::path>& inputs = {});

/// The same check for a model folder, which also must not be one that a run is writing to.
void require_free_folder(const Arguments& args, const std::filesystem::path& folder,
                         const std::vector<std::filesystem::path>& inputs);

}  // namespace qtrain
