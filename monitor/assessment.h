#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "monitor/sample.h"

namespace qtrain::monitor {

/// One thing that the samples show: a word for programs and a sentence with the figures that it rests on.
struct Finding {
  std::string_view kind;  ///< out_of_memory_soon, throttled, starved, memory_bound, healthy, underused,
                          ///< idle or ended
  std::string text;
};

/// What the samples show, the most urgent first; never empty. The limits that it judges by are in docs/monitor.md.
std::vector<Finding> assess(const Summary& summary);
Json assessment_json(const std::vector<Finding>& findings);

}  // namespace qtrain::monitor
