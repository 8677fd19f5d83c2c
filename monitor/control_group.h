#pragma once
#include <filesystem>
#include <string>

#include "monitor/host.h"

namespace qtrain::monitor {

/// The limits of a process whose /proc/PID/cgroup reads `membership`, in the file system of control groups at `mount`:
/// version 2, or 1 where that is mounted. Of a group and those above it the tightest limit counts; used memory leaves
/// out files that nobody has touched for long.
GroupReading read_control_group(const std::filesystem::path& mount, const std::string& membership);

}  // namespace qtrain::monitor
