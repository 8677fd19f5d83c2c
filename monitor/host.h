#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qtrain::monitor {

/// One process as /proc tells of it.
struct ProcessReading {
  std::int64_t pid = 0, parent = 0;
  std::uint64_t started = 0;  ///< ticks since the machine started: with the pid it names one process
  std::string name;           ///< printable ASCII
  bool ended = false;         ///< nobody has asked for its exit code yet
  std::uint64_t cpu_ticks = 0;
  double rss_bytes = 0;
  std::optional<std::uint64_t> read_bytes, written_bytes;  ///< of disks; none without the right to see them
};

/// What the control group of a process (a container) allows and has used; the tightest of its groups counts.
struct GroupReading {
  std::optional<double> memory_limit, memory_used;  ///< bytes; without pages of files that can be dropped
  std::optional<double> cpu_limit;                  ///< cores
  std::optional<std::uint64_t> periods, throttled;  ///< in how many of its periods the limit stopped it
};

/// Counters and levels of one moment.
struct HostReading {
  double seconds = 0;  ///< on any clock that only goes forward
  int processors = 1;
  std::uint64_t cpu_busy = 0, cpu_all = 0;        ///< ticks of all processors
  double memory_total = 0, memory_used = 0;       ///< bytes; used: what is not available
  std::uint64_t disk_read = 0, disk_written = 0;  ///< bytes of all disks
  std::uint64_t network_in = 0, network_out = 0;  ///< bytes, without the loopback
  GroupReading group;
  std::vector<ProcessReading> processes;  ///< the watched one and all below it; empty: it is gone

  /// Cores that work here may use, and its memory in bytes.
  double usable_cores() const;
  double usable_memory() const;
};

/// Reads /proc and /sys below `root`.
class Host {
 public:
  explicit Host(std::filesystem::path root = "/");
  /// With the process `watched` and those below it.
  HostReading read(double seconds, std::optional<std::int64_t> watched) const;
  /// Nothing where there is none.
  std::optional<ProcessReading> process(std::int64_t pid) const;
  /// The process that has this file locked (flock), by way of /proc/PID/fdinfo; one that started it as another of its
  /// kind stands for both. A file that is only there, or only open, is held by nobody.
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
