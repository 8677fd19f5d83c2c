#include "convert/inspect.h"

#include <fmt/format.h>

#include "app/commands/commands.h"
#include "core/os/paths.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/manifest.h"

namespace qtrain {

int run_inspect(const Arguments& args) {
  const std::filesystem::path path = args.operand(0);
  const bool list = args.has("tensors") || args.json(), verify = args.has("verify");
  if (verify) {  // before reading files that may be damaged
    if (!path_exists(path / kManifest))
      fail(ErrorKind::usage,
           {.cause = "has no manifest.json, so there are no hashes to check", .place = path.string()});
    const bool checkpoint = path_exists(path / kTrainingState);
    check_manifest(path, ManifestCheck::hashes, checkpoint ? Beside::notes : Beside::anything);
  }
  CommandResult result{.text = "", .json = inspect_path(path, list ? TensorList::include : TensorList::leave_out)};
  result.text = inspect_text(result.json);
  if (verify) {
    result.json["verified"] = true;
    result.text += fmt::format("{}: all files match their recorded hashes\n", path.string());
  }
  args.give(result);
  return 0;
}

}  // namespace qtrain
