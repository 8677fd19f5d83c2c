#include "monitor/control_group.h"

#include <fstream>
#include <sstream>
#include <vector>

namespace qtrain::monitor {
namespace {

namespace fs = std::filesystem;

constexpr double kNoLimit = 1e18;  // version 1 writes about 2^63 for "no limit"

std::optional<double> number_in(const fs::path& file) {
  std::ifstream in(file);
  double value = 0;
  return in >> value ? std::optional(value) : std::nullopt;  // empty for "max"
}

/// The value after a word in a file of lines "word value".
std::optional<double> word_in(const fs::path& file, std::string_view word) {
  std::ifstream in(file);
  double value = 0;
  for (std::string name; in >> name >> value;)
    if (name == word) return value;
  return {};
}

/// The path in a line "0::/path" or "4:cpu,cpuacct:/path" with that controller, which is empty in version 2.
std::string path_in(const std::string& membership, std::string_view controller) {
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    if (controller.empty() && second == first + 1) return line.substr(second + 1);
    for (std::string name; std::getline(names, name, ',');)
      if (name == controller) return line.substr(second + 1);
  }
  return "/";
}

/// The folders of a group and its parents. In a container, the path may be that of the host, which does not exist.
std::vector<fs::path> groups(const fs::path& mount, const std::string& path) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::path group = fs::path(path).relative_path();
  for (; !group.empty(); group = group.parent_path())
    if (fs::is_directory(mount / group, error)) found.push_back(mount / group);
  found.push_back(mount);
  return found;
}

struct Names {
  const char *limit, *used, *file_pages;
};

void read_memory(GroupReading& reading, const std::vector<fs::path>& folders, const Names& names) {
  for (const fs::path& folder : folders) {
    const auto limit = number_in(folder / names.limit);
    if (!limit || *limit > kNoLimit || (reading.memory_limit && *limit >= *reading.memory_limit)) continue;
    reading.memory_limit = limit;
    reading.memory_used = number_in(folder / names.used);
    if (reading.memory_used) *reading.memory_used -= word_in(folder / "memory.stat", names.file_pages).value_or(0);
  }
}

void take_cpu_limit(GroupReading& reading, const fs::path& folder, double quota, double period) {
  if (quota <= 0 || period <= 0 || (reading.cpu_limit && quota / period >= *reading.cpu_limit)) return;
  reading.cpu_limit = quota / period;
  const auto count = [&](const char* word) -> std::optional<std::uint64_t> {
    const auto value = word_in(folder / "cpu.stat", word);
    return value ? std::optional(static_cast<std::uint64_t>(*value)) : std::nullopt;
  };
  reading.periods = count("nr_periods");
  reading.throttled = count("nr_throttled");
}

void read_cpu(GroupReading& reading, const fs::path& folder) {
  std::ifstream in(folder / "cpu.max");
  double quota = 0, period = 0;
  if (in >> quota >> period) take_cpu_limit(reading, folder, quota, period);
}

}  // namespace

GroupReading read_control_group(const fs::path& mount, const std::string& membership) {
  GroupReading reading;
  std::error_code error;
  if (fs::exists(mount / "memory/memory.limit_in_bytes", error)) {
    read_memory(reading, groups(mount / "memory", path_in(membership, "memory")),
                {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"});
    for (const fs::path& folder : groups(mount / "cpu", path_in(membership, "cpu")))
      take_cpu_limit(reading, folder, number_in(folder / "cpu.cfs_quota_us").value_or(-1),
                     number_in(folder / "cpu.cfs_period_us").value_or(0));
    return reading;
  }
  const std::vector<fs::path> folders = groups(mount, path_in(membership, ""));
  read_memory(reading, folders, {"memory.max", "memory.current", "inactive_file"});
  for (const fs::path& folder : folders) read_cpu(reading, folder);
  return reading;
}

}  // namespace qtrain::monitor
