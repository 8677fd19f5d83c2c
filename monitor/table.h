#pragma once
#include <string>
#include <vector>

#include "monitor/sample.h"

namespace qtrain::monitor {

/// Contents of a view's first lines.
struct Heading {
  std::string watched;   ///< "process 4242 (qtrain)"; empty for the whole machine
  double interval = 1;   ///< seconds
  double duration = 0;   ///< seconds; 0 to run until stopped
  std::string no_gpu;    ///< why no GPU can be read; empty if one can
  bool unicode = false;  ///< whether the terminal shows non-ASCII characters
};

/// The live view in lines of at most `columns` (at least 60): current values with mean, min and max over all samples,
/// and the assessment so far. With several GPUs, each has one line. From 80 columns on, bars show the last minutes:
/// percentages from 0 to 100, other values from 0 to the largest one shown.
std::vector<std::string> live_view(const Heading& heading, const Sample& now, const Summary& summary, int columns);

/// The final summary, with all values of each GPU and the assessment.
std::string summary_text(const Heading& heading, const Summary& summary, int columns);

/// A sample in one line, for outputs that cannot be redrawn.
std::string sample_line(const Sample& sample);

}  // namespace qtrain::monitor
