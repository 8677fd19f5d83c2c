#include "train/inspect/inspect.h"

#include "train/cli/arguments.h"
#include "train/manifest.h"

namespace qtrain {

int run_inspect(const Arguments& args) {
  const std::filesystem::path path = args.operand(0);
  const bool list = args.has("tensors") || args.json();
  auto report = inspect_path(path, list ? TensorList::include : TensorList::leave_out);
  if (args.has("verify")) {
    if (!std::filesystem::exists(path / kManifest))
      fail(ErrorKind::usage,
           {.cause = "has no manifest.json, so there are no hashes to check", .place = path.string()});
    check_manifest(path, ManifestCheck::hashes);
    report["verified"] = true;
    args.log().info("{}: all files are what was saved", path.string());
  }
  if (args.json()) {
    args.log().result(dump_json(report));
  } else {
    args.log().result_stream(inspect_text(report));
  }
  return 0;
}

}  // namespace qtrain
