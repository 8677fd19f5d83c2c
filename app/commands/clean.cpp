#include <fmt/format.h>

#include "app/commands/commands.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "train/checkpoint/checkpoint_folders.h"
#include "train/checkpoint/output_lock.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

std::uintmax_t bytes_below(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && !entry.is_symlink()) bytes += entry.file_size();
  return bytes;
}

void remove_all_of(const std::vector<fs::path>& folders) {
  for (const fs::path& folder : folders) {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error) fail(ErrorKind::disk, {.cause = "cannot be removed: " + error.message(), .place = folder.string()});
  }
}

}  // namespace

int run_clean(const Arguments& args) {
  const fs::path output = args.operand(0);
  std::error_code error;
  if (!fs::is_directory(output, error)) fail(ErrorKind::input, {.cause = "is not a folder", .place = output.string()});
  const StopsAtOnce stops;  // a partly removed folder is listed again next time
  const std::vector<fs::path> folders = superseded_checkpoints(output);
  const bool remove = args.has("yes");
  std::optional<OutputLock> lock;  // creates a lock file, so only if there is something to remove
  if (remove && !folders.empty()) lock.emplace(output);
  CommandResult result{.text = "", .json = {{"removed", remove}, {"folders", Json::array()}}};
  for (const fs::path& folder : folders) {
    const std::uintmax_t bytes = bytes_below(folder);
    result.text += fmt::format("{}  {:.1f} MB\n", folder.string(), static_cast<double>(bytes) / 1e6);
    result.json["folders"].push_back({{"path", folder.string()}, {"bytes", bytes}});
  }
  if (remove) remove_all_of(folders);
  result.text += fmt::format("{} {}\n", counted(static_cast<std::int64_t>(folders.size()), "superseded checkpoint"),
                             remove            ? "removed"
                             : folders.empty() ? "in " + output.string()
                                               : "listed; add --yes to remove them");
  args.give(result);
  return 0;
}

}  // namespace qtrain
