#include "train/checkpoint/checkpoint_folders.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/pending.h"
#include "core/utf8.h"
#include "train/checkpoint/foreign_results.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuperseded = ".superseded";
constexpr const char* kStaged = ".final.tmp";  // inside the output directory

fs::path doomed_name(const fs::path& folder) {
  return folder.string() + ".removed";
}

bool is_sealed(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / kManifest, ignored);
}

// "checkpoint-N.superseded", with a number appended if that is taken.
fs::path superseded_name(const fs::path& checkpoint) {
  const std::string first = checkpoint.string() + std::string(kSuperseded);
  fs::path name = first;
  for (int number = 2; path_exists(name); ++number) name = fmt::format("{}.{}", first, number);
  return name;
}

// Turns exceptions of std::filesystem into disk errors.
template <class Work>
void on_disk(const Work& work) {
  try {
    work();
  } catch (const fs::filesystem_error& e) {
    fail(
        ErrorKind::disk,
        {.cause = e.code().message(), .place = e.path1().string(), .remedy = "the last complete checkpoint is intact"});
  }
}

// Whether this is the ending that superseded_name appends to a checkpoint's name.
bool ends_superseded(std::string_view ending) {
  if (!ending.starts_with(kSuperseded)) return false;
  ending.remove_prefix(kSuperseded.size());
  return ending.empty() || (ending[0] == '.' && ending.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

// Renames a folder before deleting it, so that a checkpoint is never partially there.
void remove_folder(const fs::path& folder) {
  const fs::path doomed = doomed_name(folder);
  fs::remove_all(doomed);
  rename_synced(folder, doomed);
  fs::remove_all(doomed);
}

// Gives a finished folder its final name. A sealed folder of that name is removed only once the new one is safely in
// place; an unsealed one is set aside instead.
void replace_folder(const fs::path& from, const fs::path& to) {
  const bool taken = fs::exists(fs::symlink_status(to));  // also true for a dangling link
  if (taken && !is_sealed(to)) fs::rename(to, superseded_name(to));
  if (!path_exists(to)) return rename_synced(from, to);
  const fs::path doomed = doomed_name(to);
  fs::remove_all(doomed);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    rename_synced(from, doomed);
  } else {  // not every file system can exchange; clear_leftovers repairs an interruption here
    rename_synced(to, doomed);
    rename_synced(from, to);
  }
  std::error_code later;  // the next run removes what remains
  fs::remove_all(doomed, later);
}

// On error, e.g. a full disk, removes the unfinished folder.
void write_sealed(const SealedFolder& what, const fs::path& folder) {
  try {
    fs::remove_all(folder);
    fs::create_directories(folder);
    what.write(folder);
    write_manifest(folder, what.step, what.world_size);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    throw;
  }
}

// Whether a killed run left the file under its temporary name. Other programs may be writing files of theirs.
bool is_abandoned_file_of_run(const fs::path& file) {
  const fs::path name = file.filename();
  return is_pending_file(name) && is_file_of_run(name.stem().stem().string().substr(1)) && is_abandoned(file);
}

// Moves the files of a sealed folder into `target`, the manifest last. Files that an interrupted move already placed
// are skipped.
void move_into(const fs::path& staged, const fs::path& target) {
  const std::vector<std::string> names = sealed_files(staged);
  fs::remove(target / kManifest);
  sync_folder(target);
  remove_other_weights(target, {names.begin(), names.end()});
  std::set<fs::path> folders{target};
  for (const std::string& name : names) {
    const fs::path to = target / name;
    fs::create_directories(to.parent_path());
    if (path_exists(staged / name)) fs::rename(staged / name, to);
    folders.insert(to.parent_path());
  }
  for (const fs::path& folder : folders) sync_folder(folder);
  fs::rename(staged / kManifest, target / kManifest);
  sync_folder(target);
}

// Checks sizes only: a run that resumes from the checkpoint checks the contents.
bool is_whole(const fs::path& checkpoint) {
  try {
    check_manifest(checkpoint, ManifestCheck::sizes);
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return false;
  }
}

bool is_one_of(const std::vector<fs::path>& names, const fs::path& checkpoint) {
  return std::find(names.begin(), names.end(), checkpoint.filename()) != names.end();
}

// Restores the name of an intact checkpoint after an interrupted save or removal. Returns false if there is nothing
// worth keeping.
bool put_back(const fs::path& leftover, Log& log) {
  fs::path checkpoint = leftover;
  checkpoint.replace_extension();
  if (step_of_checkpoint(checkpoint) < 0 || path_exists(checkpoint) || !is_whole(leftover)) return false;
  std::error_code error;
  fs::rename(leftover, checkpoint, error);
  if (error)
    log.warn("{} is intact but cannot be renamed: {}", one_line(leftover.string()), error.message());
  else
    log.info("recovered {} from an interrupted run", one_line(checkpoint.string()));
  return true;
}

// Moves a final model that an interrupted run had finished into place. Returns false if it is incomplete.
bool finish_moving(const fs::path& staged, Log& log) {
  const fs::path target = staged.parent_path();
  try {
    const std::int64_t step = check_moving(staged, target);
    on_disk([&] {
      move_into(staged, target);
      fs::remove_all(staged);
    });
    log.info("moved the finished model of an interrupted run (step {}) to {}", step, one_line(target.string()));
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::disk) return false;
    log.warn("{} contains a finished model that cannot be moved: {}", one_line(staged.string()), e.what());
    return true;
  }
}

// Entries of `output` named checkpoint-N plus an ending that `is_ending` accepts, in order of N.
template <class IsEnding>
std::vector<fs::path> by_step(const fs::path& output, const IsEnding& is_ending) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(output, missing)) {
    const std::string name = entry.path().filename().string();
    const std::size_t end = std::min(name.find('.'), name.size());
    const std::int64_t step = step_of_checkpoint(name.substr(0, end));
    if (step >= 0 && is_ending(name.substr(end))) found.emplace_back(step, entry.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& f : found) paths.push_back(std::move(f.second));
  return paths;
}

}  // namespace

std::vector<fs::path> find_checkpoints(const fs::path& output) {
  std::vector<fs::path> found = by_step(output, [](const std::string& ending) { return ending.empty(); });
  std::erase_if(found, [](const fs::path& folder) { return !is_sealed(folder); });
  return found;
}

std::vector<fs::path> unsealed_checkpoints(const fs::path& output) {
  std::vector<fs::path> found = by_step(output, [](const std::string& ending) { return ending.empty(); });
  std::erase_if(found, [](const fs::path& folder) { return is_sealed(folder) || !is_folder(folder); });
  return found;
}

void save_sealed(const SealedFolder& folder) {
  const fs::path temporary = folder.target.string() + ".tmp";
  on_disk([&] {
    write_sealed(folder, temporary);
    replace_folder(temporary, folder.target);
  });
}

void save_sealed_into(const SealedFolder& folder) {
  const fs::path staged = folder.target / kStaged;
  on_disk([&] { write_sealed(folder, staged); });
  try {
    on_disk([&] {
      move_into(staged, folder.target);
      fs::remove_all(staged);
    });
  } catch (const Error& e) {
    if (!is_sealed(staged)) throw;
    fail(e.kind(), {.cause = e.text().cause,
                    .place = e.text().place,
                    .remedy = fmt::format("the finished model is in {}: move what is not yet in {} there, {} last; "
                                          "the next run does that too",
                                          staged.string(), folder.target.string(), kManifest)});
  }
}

bool unseal(const fs::path& output) {
  if (!manifest_step(output)) return false;
  on_disk([&] { fs::remove(output / kManifest); });
  sync_folder(output);
  return true;
}

void rotate_checkpoints(const fs::path& output, const Rotation& rotation) {
  std::vector<fs::path> all = find_checkpoints(output);
  std::erase_if(all, [&](const fs::path& checkpoint) { return is_one_of(rotation.damaged, checkpoint); });
  std::erase_if(all, [](const fs::path& checkpoint) { return !is_whole(checkpoint); });
  const auto limit = static_cast<std::size_t>(std::max<std::int64_t>(rotation.limit, 1));
  std::size_t excess = all.size() > limit ? all.size() - limit : 0;
  for (const fs::path& checkpoint : all) {
    if (excess == 0) break;
    if (is_one_of(rotation.keep, checkpoint)) continue;
    on_disk([&] { remove_folder(checkpoint); });
    --excess;
  }
}

bool is_leftover(const fs::path& name) {
  const fs::path ending = name.extension();
  const bool is_unfinished = ending == ".tmp" || ending == ".removed";
  return name == kStaged || (is_unfinished && step_of_checkpoint(name.stem()) >= 0);
}

void clear_leftovers(const fs::path& output, const fs::path& named, Log& log) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output, error)) {
    const fs::path name = entry.path().filename();
    if (is_leftover(name) || is_abandoned_file_of_run(entry.path())) leftovers.push_back(entry.path());
  }
  std::sort(leftovers.rbegin(), leftovers.rend());  // ".tmp" before ".removed", because it is newer
  for (const fs::path& leftover : leftovers) {
    if (fs::equivalent(leftover, named, error) || put_back(leftover, log)) continue;
    if (leftover.filename() == kStaged && finish_moving(leftover, log)) continue;
    fs::remove_all(leftover, error);
    if (error) log.warn("{} cannot be removed: {}", one_line(leftover.string()), error.message());
  }
}

std::int64_t set_aside_checkpoints(const fs::path& output, std::int64_t step) {
  std::vector<fs::path> all = find_checkpoints(output);
  std::erase_if(all, [&](const fs::path& checkpoint) { return step_of_checkpoint(checkpoint) <= step; });
  on_disk([&] {
    for (const fs::path& checkpoint : all) fs::rename(checkpoint, superseded_name(checkpoint));
  });
  return static_cast<std::int64_t>(all.size());
}

std::vector<fs::path> superseded_checkpoints(const fs::path& output) {
  return by_step(output, ends_superseded);
}

}  // namespace qtrain
