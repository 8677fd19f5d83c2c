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

/// What happened between two readings, and how things stand at the second.
struct Sample {
  double seconds = 0;  ///< since monitoring began
  Values host;         ///< by the keys of host_quantities()
  std::vector<GpuReading> gpus;
  std::optional<RunRow> run;
  bool new_row = false;  ///< `run` came since the last sample
  std::vector<ProcessReading> processes;
};
Json sample_json(const Sample& sample, double unix_time);

/// What a counter has counted from `before` to `now`. One of 32 bits that has wrapped counts on; nothing where it went
/// back otherwise: a device was taken away, or counts from 0 again.
std::optional<std::uint64_t> counted_since(std::uint64_t before, std::uint64_t now);

/// Rates and levels of a host; empty where no time has passed.
Values host_values(const HostReading& before, const HostReading& now, double ticks_per_second);

/// Everything that the samples of a time come to.
struct Summary {
  double seconds = 0;
  std::int64_t samples = 0;
  int processors = 1;
  double usable_cores = 1, usable_memory = 0;  ///< bytes; what a container allows
  bool watches_process = false;
  std::string ended;  ///< what has, in a sentence; empty: nothing that was watched
  Series host, run;
  struct Gpu {
    int index = 0;
    std::string name;
    Series series;
    double memory_total = 0, max_clock = 0;                         ///< bytes, MHz; 0: not known
    std::int64_t samples = 0, heat_limited = 0, power_limited = 0;  ///< so many of the samples
  };
  std::vector<Gpu> gpus;

  void add(const Sample& sample);
  void set_host(const HostReading& reading);
};
Json summary_json(const Summary& summary);

}  // namespace qtrain::monitor
