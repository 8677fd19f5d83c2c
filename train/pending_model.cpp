#include "train/pending_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/weight_names.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// "out" of "out/" as well.
fs::path without_slash(const fs::path& path) {
  const fs::path full = fs::absolute(path).lexically_normal();
  return full.has_filename() ? full : full.parent_path();
}

std::vector<fs::path> names_in(const fs::path& folder) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  std::stable_partition(names.begin(), names.end(), [](const fs::path& name) { return name != "config.json"; });
  return names;
}

}  // namespace

PendingModel::PendingModel(const fs::path& target) : target_(without_slash(target)) {
  std::error_code error;
  replaces_ = fs::exists(target_, error);
  const std::string own = fmt::format(".{}.{}.tmp", target_.filename().string(), ::getpid());
  folder_ = (replaces_ ? target_ : target_.parent_path()) / own;
  fs::create_directories(folder_, error);
  if (error) fail(ErrorKind::disk, {.cause = "cannot be created: " + error.message(), .place = target.string()});
}

PendingModel::~PendingModel() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void PendingModel::commit() {
  try {
    replaces_ ? move_into_target() : rename_synced(folder_, target_);
  } catch (const fs::filesystem_error& e) {
    fail(ErrorKind::disk, {.cause = e.code().message(), .place = target_.string()});
  }
}

void PendingModel::move_into_target() const {
  const std::vector<fs::path> written = names_in(folder_);
  std::vector<fs::path> stale = names_in(target_);
  std::erase_if(stale, [&](const fs::path& name) {
    return !is_weight_file(name.string()) || std::find(written.begin(), written.end(), name) != written.end();
  });
  for (const fs::path& name : written) fs::rename(folder_ / name, target_ / name);
  for (const fs::path& name : stale) fs::remove(target_ / name);
}

}  // namespace qtrain
