#include "train/checkpoint/checkpoint_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/error.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

bool holds_what_was_saved(const fs::path& checkpoint) {
  try {
    check_manifest(checkpoint, ManifestCheck::hashes_unless_stopped);
    return true;
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return false;
  }
}

/// The output folder that the checkpoint would be in, or empty.
fs::path output_around(const fs::path& folder) {
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return folder;
  const fs::path named = folder.has_filename() ? folder : folder.parent_path();
  if (step_of_checkpoint(named.filename()) < 0) return {};
  return named.has_parent_path() ? named.parent_path() : fs::path(".");
}

std::string choice_of(const std::vector<fs::path>& checkpoints) {
  constexpr std::size_t kMost = 10;  // list only the newest
  std::vector<std::string> names;
  for (const fs::path& checkpoint : checkpoints) names.push_back(checkpoint.filename().string());
  std::size_t whole = names.size();  // number of checkpoints up to the newest intact one
  while (whole > 0 && !holds_what_was_saved(checkpoints[whole - 1])) names[--whole] += " (damaged)";
  const std::size_t left_out = names.size() > kMost ? names.size() - kMost : 0;
  names.erase(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(left_out));
  const std::string all = fmt::format("available: {}{}", left_out > 0 ? fmt::format("{} older ones, ", left_out) : "",
                                      fmt::join(names, ", "));
  return whole > 0 ? fmt::format("did you mean \"{}\"?\n  {}", checkpoints[whole - 1].string(), all) : all;
}

}  // namespace

std::string other_checkpoints(const fs::path& folder) {
  const fs::path output = output_around(folder);
  if (output.empty()) return {};
  try {
    const std::vector<fs::path> found = find_checkpoints(output);
    return found.empty() ? "" : choice_of(found);
  } catch (const Error&) {  // the error that this is added to matters more
    return {};
  }
}

}  // namespace qtrain
