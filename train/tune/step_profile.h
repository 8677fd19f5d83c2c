#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/launch_times.h"
#include "core/log.h"

namespace qtrain {

struct StepProfileOptions {
  std::int64_t steps = 5;  ///< that are measured as a whole, after those that warm up
};

/// What a training step takes as a whole, and what each of its kernels takes (on a processor: each op).
struct StepProfile {
  std::string device;
  std::int64_t tokens = 0;             ///< of an update
  std::int64_t micro_batches = 0;      ///< of an update
  double seconds = 0;                  ///< of an update as a run takes it, in the median
  std::size_t planned = 0;             ///< bytes of the memory plan
  std::size_t allocated = 0;           ///< bytes that the run has allocated on its device
  std::vector<LaunchTimes::Row> rows;  ///< of one update whose launches are timed one by one, the longest first

  /// Seconds of all rows.
  double attributed() const;
  /// Seconds of a whole step that are in none of them: the device waits for the host or for a launch. At least 0.
  double gaps() const;
};

/// Takes some steps of a config on one device and measures them, then one more whose launches are timed one by one,
/// with graphs off. Writes nothing but the token cache. Errors: those of a run; ErrorKind::stopped after a signal.
StepProfile profile_step(const ResolvedConfig& config, const StepProfileOptions& options, Log& log);

}  // namespace qtrain
