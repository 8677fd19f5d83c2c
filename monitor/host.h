#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qtrain::monitor {

/// One process, as /proc shows it.
struct ProcessReading {
  std::int64_t pid = 0, parent = 0;
  std::uint64_t started = 0;  ///< ticks since boot; with the pid, identifies a process
  std::string name;           ///< printable ASCII
  bool ended = false;         ///< zombie: its parent has not read the exit code yet
  std::uint64_t cpu_ticks = 0;
  double rss_bytes = 0;
  std::optional<std::uint64_t> read_bytes, written_bytes;  ///< disk bytes; empty without permission to read them
};

/// Limits and usage of the control group (container) of a process; the tightest of nested groups counts.
struct GroupReading {
  std::optional<double> memory_limit, memory_used;  ///< bytes, without reclaimable file pages
  std::optional<double> cpu_limit;                  ///< cores
  std::optional<std::uint64_t> periods, throttled;  ///< scheduling periods, and those in which the limit stopped it
};

/// Counters and levels at one moment.
struct HostReading {
  double seconds = 0;  ///< on a monotonic clock
  int processors = 1;
  std::uint64_t cpu_busy = 0, cpu_all = 0;        ///< ticks over all processors
  double memory_total = 0, memory_used = 0;       ///< bytes; used is total minus available
  std::uint64_t disk_read = 0, disk_written = 0;  ///< bytes over all disks
  std::uint64_t network_in = 0, network_out = 0;  ///< bytes, without the loopback device
  GroupReading group;
  std::vector<ProcessReading> processes;  ///< the watched process and its descendants; empty if it has ended

  /// Usable cores and memory in bytes, within the container's limits.
  double usable_cores() const;
  double usable_memory() const;
};

/// Reads /proc and /sys below `root`.
class Host {
 public:
  explicit Host(std::filesystem::path root = "/");
  /// Reads the machine and, if given, the process `watched` with its descendants.
  HostReading read(double seconds, std::optional<std::int64_t> watched) const;
  /// The process with that id; empty if there is none.
  std::optional<ProcessReading> process(std::int64_t pid) const;
  /// The process that holds a lock (flock) on this file, found through /proc/PID/fdinfo; its parent if that has the
  /// same name. Empty if the file is not locked.
  std::optional<std::int64_t> holder_of(const std::filesystem::path& file) const;
  double ticks_per_second() const { return ticks_; }

 private:
  std::vector<ProcessReading> all_processes() const;
  std::vector<ProcessReading> family_of(std::int64_t pid) const;
  void read_disks(HostReading& reading) const;
  void read_network(HostReading& reading) const;
  GroupReading read_group(std::optional<std::int64_t> pid) const;

  std::filesystem::path root_;
  double ticks_, page_;
};

}  // namespace qtrain::monitor
