#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"
#include "monitor/gpus.h"
#include "monitor/host.h"
#include "monitor/quantities.h"
#include "monitor/run_rows.h"

namespace qtrain::monitor {

/// Rates between two readings, and levels at the second.
struct Sample {
  double seconds = 0;  ///< since monitoring began
  Values host;         ///< by the keys of host_quantities()
  std::vector<GpuReading> gpus;
  std::optional<RunRow> run;
  bool new_row = false;  ///< whether `run` is new since the last sample
  std::vector<ProcessReading> processes;
};
Json sample_json(const Sample& sample, double unix_time);

/// The increase of a counter from `before` to `now`, also across a 32-bit overflow. Empty if it decreased otherwise,
/// because a device was removed or reset.
std::optional<std::uint64_t> counted_since(std::uint64_t before, std::uint64_t now);

/// Rates and levels of the host; empty if no time has passed.
Values host_values(const HostReading& before, const HostReading& now, double ticks_per_second);

/// Summary of all samples.
struct Summary {
  double seconds = 0;
  std::int64_t samples = 0;
  int processors = 1;
  double usable_cores = 1, usable_memory = 0;  ///< within a container's limits; memory in bytes
  bool watches_process = false;
  std::string ended;  ///< a sentence on what has ended; empty if nothing watched has
  Series host, run;
  struct Gpu {
    int index = 0;
    std::string name;
    Series series;
    double memory_total = 0, max_clock = 0;                         ///< bytes, MHz; 0 if unknown
    std::int64_t samples = 0, heat_limited = 0, power_limited = 0;  ///< numbers of samples
  };
  std::vector<Gpu> gpus;

  void add(const Sample& sample);
  void set_host(const HostReading& reading);
};
Json summary_json(const Summary& summary);

}  // namespace qtrain::monitor
