#pragma once
// Runs of several ranks, one of which fails at a chosen point, by means of a library that is loaded into them.
#include <string>

#include "tests/e2e/ranks.h"

namespace qtrain::e2e {

/// What happens to which of how many ranks, and when.
struct RankFault {
  std::string kind;   ///< "kill", "segv", "stop", "exit", "slow", "late", "skip", "unequal", "hold"
  std::string phase;  ///< "start", "rows", "agreement", "step", "evaluation", "saving", "end"
  int ranks = 2, rank = 0;

  std::string text() const;
};
inline void PrintTo(const RankFault& fault, std::ostream* out) {
  *out << fault.text();
}

/// Six updates, with an evaluation after the third and a checkpoint after every second one.
class RankFaults : public Ranks {
 protected:
  /// The config of a run on one rank.
  Json config() const;
  /// The environment variables that cause the fault in the ranks of a run.
  std::vector<std::string> variables(const RankFault& fault) const;
  bool has_happened() const { return fs::exists(at("once")); }
  /// The result of an undisturbed run.
  std::string undisturbed() const;
  std::string result() const { return bytes_of(at("out/adapter_model.safetensors")); }
  /// Checks that no process of the run is left.
  void expect_nothing_left() const;
  /// Complete checkpoints with their final names, newest last.
  std::vector<std::string> whole_checkpoints() const;
  /// Checks that the newest checkpoint, if any, is intact.
  void expect_newest_is_whole() const;
};

/// Whether the library can be loaded: it does not work with sanitizers.
bool faults_can_be_made();

}  // namespace qtrain::e2e
