#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "core/log.h"

/// The checkpoint folders of an output directory: listing, sealing, rotation, and cleanup after interruptions.
namespace qtrain {

/// The checkpoints in `output` that have a manifest, in order of step.
std::vector<std::filesystem::path> find_checkpoints(const std::filesystem::path& output);
/// Checkpoint folders without a manifest: of other programs, or damaged. No run resumes from them.
std::vector<std::filesystem::path> unsealed_checkpoints(const std::filesystem::path& output);

/// A checkpoint or result folder to be written.
struct SealedFolder {
  std::filesystem::path target;
  std::int64_t step = 0;
  std::function<void(const std::filesystem::path& folder)> write;
  int world_size = 1;  ///< number of ranks in the run
};

/// Writes the sealed folder `target`: `write` fills a temporary folder next to it, then the manifest is added and the
/// folder is renamed. Only then is an older `target` removed; one without a manifest becomes `target`.superseded.
/// Throws ErrorKind::disk and leaves nothing unfinished behind.
void save_sealed(const SealedFolder& folder);

/// Writes a sealed folder into a directory that contains other files: the files that `write` creates are moved in one
/// by one, between the removal of the old manifest and the new one. Until then the directory is untouched. If a file
/// cannot be moved, the rest stays where it is and the error says where.
void save_sealed_into(const SealedFolder& folder);

/// Removes a valid manifest, because a newer run has taken over the directory. Returns whether there was one. Throws
/// ErrorKind::disk.
bool unseal(const std::filesystem::path& output);

/// Removes the oldest checkpoints beyond `limit`, but never those named in `keep` (the one just written, the best).
/// Damaged ones (wrong file sizes, or named in `damaged`) are neither counted nor removed. Throws ErrorKind::disk.
struct Rotation {
  std::int64_t limit = 1;
  std::vector<std::filesystem::path> keep;          ///< folder names
  std::vector<std::filesystem::path> damaged = {};  ///< folder names
};
void rotate_checkpoints(const std::filesystem::path& output, const Rotation& rotation);

/// Whether clear_leftovers may remove a folder of this name.
bool is_leftover(const std::filesystem::path& name);

/// Removes the leftovers of interrupted saves and removals, but never `named`; an intact checkpoint gets its name back
/// unless that is taken, and an intact final model is moved into place. Warns about what cannot be removed or moved.
/// The output directory must be locked.
void clear_leftovers(const std::filesystem::path& output, const std::filesystem::path& named, Log& log);

/// Renames the checkpoints of an earlier run after `step` to "checkpoint-N.superseded" (with a number appended if that
/// is taken), so that they are neither resumed from nor rotated. Returns how many.
std::int64_t set_aside_checkpoints(const std::filesystem::path& output, std::int64_t step = -1);

/// The folders in `output` that set_aside_checkpoints and save_sealed renamed, in order of step.
std::vector<std::filesystem::path> superseded_checkpoints(const std::filesystem::path& output);

}  // namespace qtrain
