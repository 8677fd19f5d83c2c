#pragma once
#include <string>
#include <vector>

#include "core/log.h"
#include "report/metrics.h"

namespace qtrain {

/// The phases of a run's start-up: shows each one on the live line, and finally logs how long each took.
class StartPhases {
 public:
  explicit StartPhases(Log& log) : log_(log) {}
  /// Begins a phase and ends the one before. `name` is what it does: "loading weights".
  void begin(std::string name);
  /// Ends the start-up after the first step. Does nothing when called again.
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
