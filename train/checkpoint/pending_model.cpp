#include "train/checkpoint/pending_model.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/formats/weight_files.h"
#include "core/os/file.h"
#include "core/os/output_place.h"
#include "core/os/paths.h"
#include "core/os/pending.h"
#include "core/os/stop.h"
#include "train/checkpoint/foreign_results.h"
#include "train/checkpoint/output_lock.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// Relative paths of the files below a folder, config.json last.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (!entry.is_directory()) names.push_back(entry.path().lexically_relative(folder));
  std::sort(names.begin(), names.end());
  std::stable_partition(names.begin(), names.end(), [](const fs::path& name) { return name != "config.json"; });
  return names;
}

// Names of weight files directly inside a folder.
std::vector<fs::path> weight_files_there(const fs::path& folder) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_weight_file(entry.path().filename().string())) names.push_back(entry.path().filename());
  return names;
}

// The text of the mark in a folder, which differs between two results of the same command; empty without a mark.
std::string mark_in(const fs::path& folder) {
  const fs::path mark = folder / kResultMark;
  std::error_code absent;
  return fs::is_regular_file(mark, absent) ? read_text(mark) : "";
}

}  // namespace

fs::path model_place(const fs::path& target) {
  const fs::path place = behind_links(real_path(target));
  if (place.empty())
    fail(ErrorKind::usage, {.cause = "is a link whose target has no path",
                            .place = target.string(),
                            .remedy = "give the path of the folder itself"});
  return real_path(place);
}

PendingModel::PendingModel(const fs::path& target, std::string command)
    : target_(model_place(target)), command_(std::move(command)) {
  std::error_code error;
  replaces_ = fs::exists(target_, error);
  was_free_ = !replaces_ || is_free_for(command_, target_);
  earlier_ = mark_in(target_);
  for (const fs::path& folder : {target_.parent_path(), target_}) remove_abandoned(folder, target_.filename());
  folder_ = pending_name(replaces_ ? target_ / target_.filename() : target_);
  fs::create_directories(folder_.parent_path(), error);
  const bool created = fs::create_directory(folder_, error);
  if (error) fail(ErrorKind::disk, {.cause = "cannot be created: " + error.message(), .place = target.string()});
  if (!created)
    fail(ErrorKind::disk, {.cause = "another process is writing to it",
                           .place = target.string(),
                           .remedy = "wait for it to finish, or name another folder"});
  lock_ = lock_pending_folder(folder_);
}

PendingModel::~PendingModel() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void PendingModel::commit(CommitAs as) {
  unlock_pending_folder(folder_, lock_);
  mark_result(folder_, command_);
  require_free();
  if (as == CommitAs::result) finish_or_stop();
  try {
    replaces_ ? move_into_target() : rename_synced(folder_, target_);
  } catch (const fs::filesystem_error& e) {
    fail(ErrorKind::disk, {.cause = e.code().message(), .place = (e.path2().empty() ? target_ : e.path2()).string()});
  }
}

// What was not there at the beginning is not replaced, nor what a run has begun to write since.
void PendingModel::require_free() const {
  if (is_locked(target_))
    fail(ErrorKind::usage, {.cause = "a run is writing to this folder, so nothing was written",
                            .place = target_.string(),
                            .remedy = "wait for it to finish, or choose another folder"});
  if (!was_free_ || !path_exists(target_)) return;
  if (is_folder(target_) && is_free_for(command_, target_) && mark_in(target_) == earlier_) return;
  fail(ErrorKind::usage, {.cause = "another program has written to it in the meantime, so nothing was written",
                          .place = target_.string(),
                          .remedy = "choose another folder, or replace it with --overwrite"});
}

void PendingModel::move_into_target() const {
  const std::vector<fs::path> written = files_in(folder_);
  std::vector<fs::path> stale;
  if (std::ranges::any_of(written, [](const fs::path& name) { return is_weight_file(name.string()); }))
    stale = weight_files_there(target_);
  std::erase_if(stale,
                [&](const fs::path& name) { return std::find(written.begin(), written.end(), name) != written.end(); });
  std::set<fs::path> folders;
  for (const fs::path& name : written) {
    const fs::path to = target_ / name;
    fs::create_directories(to.parent_path());
    fs::rename(folder_ / name, to);
    folders.insert(to.parent_path());
  }
  for (const fs::path& name : stale) fs::remove(target_ / name);
  for (const fs::path& folder : folders) sync_folder(folder);
  sync_folder(target_);
}

}  // namespace qtrain
