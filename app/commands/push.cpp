#include <fmt/format.h>

#include "app/commands/commands.h"
#include "app/pushing.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "train/checkpoint/output_lock.h"

namespace qtrain {

int run_push(const Arguments& args) {
  PushRequest request{.folder = args.operand(0), .name = pushed_name(args.operand(1), "OWNER/NAME")};
  if (const auto branch = args.text("revision")) {
    if (!is_revision(*branch)) fail(ErrorKind::usage, {.cause = "is no name of a branch", .place = "--revision"});
    request.name.revision = *branch;
  }
  if (is_folder(request.folder) && is_locked(request.folder))
    fail(ErrorKind::usage, {.cause = "a run is writing to this folder",
                            .place = request.folder.string(),
                            .remedy = "wait until it is done, or push one of its checkpoints"});
  request.message = args.text("message").value_or("");
  if (args.has("private")) request.is_private = true;
  if (args.has("all")) request.which = WhichFiles::all;
  request.allow_secrets = args.has("allow_secrets");
  request.dry_run = args.has("dry_run");
  set_stop_answer("stopping; the same command goes on from there");
  args.give(push_folder(request, args.log()));
  return 0;
}

}  // namespace qtrain
