#pragma once
#include <string>
#include <vector>

#include "core/log.h"
#include "report/metrics.h"

namespace qtrain {

/// The parts of a run before its steps go on by themselves: each is on the live line while it lasts, and one line in
/// the end says how long each took.
class StartPhases {
 public:
  explicit StartPhases(Log& log) : log_(log) {}
  /// Ends the part before. `name`: what is done, "loading weights".
  void begin(std::string name);
  /// The first step is done; nothing the second time.
  void finish();

 private:
  struct Phase {
    std::string name;
    double seconds = 0;
  };
  void end();

  Log& log_;
  std::vector<Phase> phases_;
  Stopwatch whole_, part_;
  bool runs_ = false, finished_ = false;
};

}  // namespace qtrain
