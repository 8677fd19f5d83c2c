#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "app/cli/arguments.h"
#include "config/config.h"
#include "hub/pushed_files.h"

namespace qtrain {

/// A folder to push, and how.
struct PushRequest {
  std::filesystem::path folder;
  HubName name;
  std::string token = {};  ///< empty: that of the environment
  std::string message = {};
  std::optional<bool> is_private = {};
  WhichFiles which = WhichFiles::result;
  bool allow_secrets = false, dry_run = false;
};

/// Parses the repository of a push: `OWNER/NAME` or `NAME`, also as `OWNER/NAME@BRANCH`. Throws ErrorKind::usage,
/// naming `place`, for anything else.
HubName pushed_name(const std::string& text, const std::string& place);

/// The push that a config asks for with push_to_hub; none without it. Throws ErrorKind::usage for a bad name.
std::optional<PushRequest> push_of_run(const ResolvedConfig& config);

/// Pushes the folder; adds a card if neither it nor the repository has one. Throws as push, files_to_push and
/// require_no_secrets do.
CommandResult push_folder(const PushRequest& request, Log& log);

/// Checks before a run that its result can be pushed, as prepare_push does.
void prepare_push_of(const PushRequest& request, Log& log);

}  // namespace qtrain
