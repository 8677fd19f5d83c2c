#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "core/log.h"

/// The folders of an output directory as a whole: what is a checkpoint, which ones stay, and what interruptions left.
namespace qtrain {

/// The checkpoints below `output` that have a manifest, by step, oldest first.
std::vector<std::filesystem::path> find_checkpoints(const std::filesystem::path& output);
/// Folders that are called so without one: of other programs, or damaged. No run goes on from them.
std::vector<std::filesystem::path> unsealed_checkpoints(const std::filesystem::path& output);

/// A folder of a checkpoint or a result that is to be written.
struct SealedFolder {
  std::filesystem::path target;
  std::int64_t step = 0;
  std::function<void(const std::filesystem::path& folder)> write;
  int world_size = 1;  ///< ranks of the run
};

/// Writes a sealed folder `target`: `write` fills a folder of another name beside it, whose manifest comes last; then
/// one rename, and an older `target` goes only then; one without a manifest becomes `target`.superseded. Errors:
/// ErrorKind::disk; nothing unfinished stays.
void save_sealed(const SealedFolder& folder);

/// Writes a sealed folder into a directory where other files lie too: those that `write` makes take their places there
/// one by one, between the removal of the old manifest and the new one. Until then nothing that lies there is touched.
/// Where one cannot take its place the rest stays, and the error says where.
void save_sealed_into(const SealedFolder& folder);

/// Takes the manifest away, where there is a whole one: the files are of a run that another one has followed. Returns
/// whether there was. Errors: ErrorKind::disk.
bool unseal(const std::filesystem::path& output);

/// Removes the oldest checkpoints beyond `limit`, never those named in `keep` (the one just written, the best). Damaged
/// ones neither count nor go: those whose sizes are wrong, and those named in `damaged`. Errors: ErrorKind::disk.
struct Rotation {
  std::int64_t limit = 1;
  std::vector<std::filesystem::path> keep;          ///< folder names
  std::vector<std::filesystem::path> damaged = {};  ///< folder names
};
void rotate_checkpoints(const std::filesystem::path& output, const Rotation& rotation);

/// Removes what interrupted saves and removals have left, but never `named`; a whole checkpoint gets its name again
/// where no other has it, and a whole final model its place. What cannot be removed or moved is a warning. The output
/// directory has to be locked.
void clear_leftovers(const std::filesystem::path& output, const std::filesystem::path& named, Log& log);

/// Renames the checkpoints of an earlier run that are of later steps than `step`, so that nothing goes on from them nor
/// rotates them: "checkpoint-N" and ".superseded", with a number behind it where a run before has left one. Returns how
/// many.
std::int64_t set_aside_checkpoints(const std::filesystem::path& output, std::int64_t step = -1);

/// What set_aside_checkpoints and save_sealed have left in `output` under such names, by step.
std::vector<std::filesystem::path> superseded_checkpoints(const std::filesystem::path& output);

}  // namespace qtrain
