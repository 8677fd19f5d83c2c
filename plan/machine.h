#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace qtrain {

/// The "key : value" lines of a /proc file; the first value of each key.
std::map<std::string, std::string> proc_values(const char* file);

/// Bytes of host memory; 0 if unknown.
struct MachineMemory {
  double total = 0, available = 0;
  double limit = 0;  ///< limit of the control group (container); 0 if none

  /// Bytes that a run can still use.
  double usable() const { return limit > 0 && limit < available ? limit : available; }
};
MachineMemory machine_memory();

/// Free bytes on the disk of `path` or of its nearest existing parent folder; empty if unknown.
std::optional<double> free_disk(std::filesystem::path path);

}  // namespace qtrain
