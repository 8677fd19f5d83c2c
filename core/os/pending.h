#pragma once
#include <filesystem>

#include "core/os/descriptor.h"

namespace qtrain {

/// The name next to `target` under which this process writes it until it is finished: ".NAME.PROCESS.tmp", with the
/// middle of a long name left out.
std::filesystem::path pending_name(const std::filesystem::path& target);

/// Locks a pending file while it is open, so that it does not look abandoned to processes that cannot see this one: in
/// another container, or on another machine that shares the disk.
void lock_pending(int descriptor);
/// The same for a pending folder, with a lock file in it that must be removed before the folder is renamed.
Descriptor lock_pending_folder(const std::filesystem::path& folder);
void unlock_pending_folder(const std::filesystem::path& folder, Descriptor& lock);

/// Whether a file or folder with a pending name was left by a terminated process: it is not locked, and no process has
/// that id.
bool is_abandoned(const std::filesystem::path& pending);

/// Removes what terminated processes have left in `folder` under pending names of `name`. What is locked or cannot be
/// removed stays.
void remove_abandoned(const std::filesystem::path& folder, const std::filesystem::path& name);

}  // namespace qtrain
