#pragma once
#include <string>
#include <vector>

#include "monitor/sample.h"

namespace qtrain::monitor {

/// What a view is about, for its first lines.
struct Heading {
  std::string watched;   ///< "process 4242 (qtrain)"; empty: the machine
  double interval = 1;   ///< seconds
  double duration = 0;   ///< seconds; 0: until it is stopped
  std::string no_gpu;    ///< why there is none to be seen; empty: there is
  bool unicode = false;  ///< the terminal shows characters beyond ASCII
};

/// Lines of at most `columns` (60 and more): how things stand now beside mean, min and max of all samples, and the
/// assessment up to now. Several GPUs have a line each. From 80 columns on the last minutes are drawn beside the
/// numbers: percentages between 0 and 100, the rest between 0 and the largest value that is shown.
std::vector<std::string> live_view(const Heading& heading, const Sample& now, const Summary& summary, int columns);

/// The same of the whole time, with everything of each GPU, and what it shows in words.
std::string summary_text(const Heading& heading, const Summary& summary, int columns);

/// One line of a sample, for where no view can be drawn again.
std::string sample_line(const Sample& sample);

}  // namespace qtrain::monitor
