#pragma once
#include <filesystem>
#include <string>

#include "monitor/host.h"

namespace qtrain::monitor {

/// Limits and usage of a process whose /proc/PID/cgroup contains `membership`, from the cgroup file system at `mount`
/// (version 2, or version 1 if that is mounted). The tightest limit of a group and its parents counts. Used memory
/// excludes inactive file pages.
GroupReading read_control_group(const std::filesystem::path& mount, const std::string& membership);

}  // namespace qtrain::monitor
