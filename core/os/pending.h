#pragma once
#include <filesystem>

#include "core/os/descriptor.h"

namespace qtrain {

/// The name beside `target` of what this process makes of it until it is finished: ".NAME.PROCESS.tmp".
std::filesystem::path pending_name(const std::filesystem::path& target);

/// Locks an open pending file while it is open, so that nobody takes it for abandoned who cannot see this process: in
/// another container, or on another machine that shares the disk.
void lock_pending(int descriptor);
/// The same for a pending folder, by a file in it that has to go before the folder gets its name.
Descriptor lock_pending_folder(const std::filesystem::path& folder);
void unlock_pending_folder(const std::filesystem::path& folder, Descriptor& lock);

/// Removes what processes that are gone have left in `folder` under pending names of `name`. What is locked stays, and
/// what cannot be removed.
void remove_abandoned(const std::filesystem::path& folder, const std::filesystem::path& name);

}  // namespace qtrain
