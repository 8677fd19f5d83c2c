#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "monitor/sample.h"

namespace qtrain::monitor {

/// One conclusion from the samples: a machine-readable kind, and a sentence with the numbers behind it.
struct Finding {
  std::string_view kind;  ///< out_of_memory_soon, throttled, starved, memory_bound, healthy, underused,
                          ///< idle or ended
  std::string text;
};

/// The conclusions from the samples, most urgent first; never empty. docs/monitor.md lists the thresholds.
std::vector<Finding> assess(const Summary& summary);
Json assessment_json(const std::vector<Finding>& findings);

}  // namespace qtrain::monitor
