#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace qtrain {

/// "key : value" lines of a /proc file; the first value of each key.
std::map<std::string, std::string> proc_values(const char* file);

/// Bytes of memory; 0 where unknown.
struct MachineMemory {
  double total = 0, available = 0;
  double limit = 0;  ///< of the control group (a container); 0: none

  /// What a run may still take.
  double usable() const { return limit > 0 && limit < available ? limit : available; }
};
MachineMemory machine_memory();

/// Bytes that may still be written below `path`, or below the nearest folder above it that is there; none: not known.
std::optional<double> free_disk(std::filesystem::path path);

}  // namespace qtrain
