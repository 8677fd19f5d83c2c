#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/os/descriptor.h"

namespace qtrain {

/// Whether a folder is the whole result of a command, after which it can no longer be stopped (finish_or_stop), or a
/// part.
enum class CommitAs : std::uint8_t { result, part };

/// Resolves a model folder name, which may go through links and folders that do not exist yet. Throws ErrorKind::usage
/// for a link without a path.
std::filesystem::path model_place(const std::filesystem::path& target);

/// A model folder under construction: it has a temporary name until `commit` and is removed without it. Leftovers of
/// killed processes for the same folder are removed first.
class PendingModel {
 public:
  /// `command` is recorded by `mark_result`. Throws ErrorKind::disk, also if another process is writing the same
  /// folder.
  PendingModel(const std::filesystem::path& target, std::string command);
  ~PendingModel();
  PendingModel(const PendingModel&) = delete;
  PendingModel& operator=(const PendingModel&) = delete;

  /// The folder to write to.
  const std::filesystem::path& folder() const { return folder_; }
  /// Renames the folder to its final name. In an existing folder, files of the same names are replaced, config.json
  /// last, and its other weight files are removed if this model has weights; other files stay. Throws ErrorKind::usage
  /// if the folder was empty, missing or an earlier result of the command, and no longer is.
  void commit(CommitAs as = CommitAs::result);

 private:
  void require_free() const;
  void move_into_target() const;

  std::filesystem::path target_, folder_;
  std::string command_;
  bool replaces_, was_free_;
  std::string earlier_;  ///< the mark of the earlier result, by which a newer one is recognized
  Descriptor lock_;
};

}  // namespace qtrain
