#pragma once
// Runs of several ranks of which one fails at a chosen point, by a library that is loaded into them.
#include <string>

#include "tests/e2e/ranks.h"

namespace qtrain::e2e {

/// What happens to which rank of how many, and when.
struct RankFault {
  std::string kind;   ///< "kill", "segv", "stop", "exit", "slow", "late", "skip", "unequal", "hold"
  std::string phase;  ///< "start", "rows", "agreement", "step", "evaluation", "saving", "end"
  int ranks = 2, rank = 0;

  std::string text() const;
};
inline void PrintTo(const RankFault& fault, std::ostream* out) {
  *out << fault.text();
}

/// Six updates that evaluate after the third and save after every second one.
class RankFaults : public Ranks {
 protected:
  /// The config of a run on one rank.
  Json config() const;
  /// The variables that let it happen in the ranks of a run.
  std::vector<std::string> variables(const RankFault& fault) const;
  bool has_happened() const { return fs::exists(at("once")); }
  /// The result of the run that nothing happened to.
  std::string undisturbed() const;
  std::string result() const { return bytes_of(at("out/adapter_model.safetensors")); }
  /// No process of the run is left.
  void expect_nothing_left() const;
  /// The checkpoints that have their names, the newest last.
  std::vector<std::string> whole_checkpoints() const;
  /// The newest checkpoint, if there is one, is whole.
  void expect_newest_is_whole() const;
};

/// Whether the library can be loaded here: not beside a sanitizer.
bool faults_can_be_made();

}  // namespace qtrain::e2e
