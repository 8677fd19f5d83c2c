#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/launch_times.h"
#include "core/log.h"

namespace qtrain {

struct StepProfileOptions {
  std::int64_t steps = 5;  ///< measured steps, after the warm-up
};

/// Duration of a training step and of each of its kernels (on a CPU: each op).
struct StepProfile {
  std::string device;
  std::int64_t tokens = 0;             ///< per update
  std::int64_t micro_batches = 0;      ///< per update
  double seconds = 0;                  ///< median time of an update in a normal run
  std::size_t planned = 0;             ///< bytes in the memory plan
  std::size_t allocated = 0;           ///< bytes allocated on the device
  std::vector<LaunchTimes::Row> rows;  ///< launches of one update that was timed launch by launch, longest first

  /// Total seconds of all rows.
  double attributed() const;
  /// Seconds of a normal step outside all rows, in which the device waits for the host or a launch. At least 0.
  double gaps() const;
};

/// Runs and times some steps of a config on one device, then one more with each launch timed and graphs off. Writes
/// nothing but the token cache. Throws as a run does, and ErrorKind::stopped after a signal.
StepProfile profile_step(const ResolvedConfig& config, const StepProfileOptions& options, Log& log);

}  // namespace qtrain
