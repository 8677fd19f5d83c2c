#include "plan/machine.h"

#include <sys/statvfs.h>

#include <cstdlib>
#include <fstream>

namespace qtrain {
namespace {

double kilobytes_of(const std::map<std::string, std::string>& values, const char* key) {
  const auto it = values.find(key);
  return it == values.end() ? 0 : std::strtod(it->second.c_str(), nullptr) * 1024;
}

/// The memory limit in bytes; 0 if the file is missing or says "max".
double cgroup_limit() {
  std::ifstream in("/sys/fs/cgroup/memory.max");
  double limit = 0;
  return in >> limit ? limit : 0;
}

}  // namespace

std::map<std::string, std::string> proc_values(const char* file) {
  std::map<std::string, std::string> values;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || colon == 0) continue;
    const auto key_end = line.find_last_not_of(" \t", colon - 1);
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    values.emplace(line.substr(0, key_end + 1), begin == std::string::npos ? "" : line.substr(begin));
  }
  return values;
}

MachineMemory machine_memory() {
  const auto memory = proc_values("/proc/meminfo");
  return {kilobytes_of(memory, "MemTotal"), kilobytes_of(memory, "MemAvailable"), cgroup_limit()};
}

std::optional<double> free_disk(std::filesystem::path path) {
  std::error_code ignored;
  path = std::filesystem::absolute(path, ignored);
  while (!std::filesystem::exists(path, ignored) && path.has_parent_path() && path != path.parent_path())
    path = path.parent_path();
  struct statvfs disk = {};
  if (statvfs(path.c_str(), &disk) != 0 || disk.f_blocks == 0) return {};  // 0: no disk
  return static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
}

}  // namespace qtrain
