#include "train/run/output_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/plural.h"
#include "core/utf8.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {

namespace fs = std::filesystem;

OutputFolder::OutputFolder(fs::path folder, Role role, Log& log) : path_(std::move(folder)), log_(log) {
  if (role == Role::leads) lock_.emplace(path_);
}

bool OutputFolder::holds(const fs::path& checkpoint) const {
  std::error_code ignored;
  return fs::equivalent(full_path(checkpoint).parent_path(), path_, ignored);
}

void OutputFolder::warn_of_unsealed() const {
  std::vector<std::string> names;
  for (const fs::path& folder : unsealed_checkpoints(path_)) names.push_back(folder.filename().string());
  if (names.empty()) return;
  log_.warn("{}: ignoring {} without a manifest.json, which marks a complete checkpoint ({})", one_line(path_.string()),
            names.size() == 1 ? "a checkpoint folder" : "checkpoint folders", fmt::join(names, ", "));
}

ResumeFrom OutputFolder::resume_from(const std::string& resume) const {
  clear_leftovers(path_, resume, log_);
  warn_of_unsealed();
  if (resume == "never") return {.named = true};
  if (resume != "auto") return {.checkpoints = {resume}, .named = true};
  std::vector<fs::path> found = find_checkpoints(path_);
  std::reverse(found.begin(), found.end());
  return {.checkpoints = std::move(found)};
}

void OutputFolder::start_over() const {
  if (!lock_) return;
  if (const auto old = set_aside_checkpoints(path_); old > 0)
    log_.warn("starting over: renamed {} of an earlier run to *.superseded", counted(old, "checkpoint"));
}

void OutputFolder::set_aside_after(std::int64_t step) const {
  if (!lock_) return;
  if (const auto later = set_aside_checkpoints(path_, step); later > 0)
    log_.warn("resuming from step {}: renamed {} of later steps to *.superseded", step, counted(later, "checkpoint"));
}

void OutputFolder::disown_result(const Start& start) const {
  if (!lock_) return;
  const auto step = manifest_step(path_);
  if (start.resumed && holds(*start.resumed) && step && *step <= start.step) return;
  if (unseal(path_))
    log_.info("{} contains the model of an earlier run until this run finishes", one_line(path_.string()));
}

}  // namespace qtrain
