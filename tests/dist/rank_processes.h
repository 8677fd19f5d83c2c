#pragma once
#include <chrono>
#include <ostream>
#include <string>
#include <vector>

#include "tests/dist/local_ranks.h"

namespace qtrain::test {

/// How one of several processes ended.
struct RankEnd {
  std::string error;    ///< what its work threw; empty: nothing
  bool killed = false;  ///< by a signal
};
inline void PrintTo(const RankEnd& end, std::ostream* out) {
  *out << (end.killed ? "killed" : end.error.empty() ? "ended well" : end.error);
}

struct RankProcesses {
  int size = 2;
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  std::vector<std::string> variables = {};  ///< "NAME=value", beside what each rank gets
  int devices = 0;                          ///< of the harness; 0: one for each rank
  int hosts = 1;                            ///< that the ranks say they are on
};

/// Why several ranks cannot use GPUs here; empty: they can.
std::string rank_processes_problem();

/// Does the work on ranks that have a GPU each, or a share of the only one. Each is a process that runs the calling
/// test alone, up to this call, which does not return there; so a test calls it once. With failures of a rank's
/// expectations the test fails.
std::vector<RankEnd> on_processes(const RankProcesses& how, const RankWork& work);

/// The same without a group of ranks: `work(rank, meeting)` has a store to meet at, and the stand-in's folder for its
/// libraries.
using BareWork = std::function<void(int rank, Store& store)>;
std::vector<RankEnd> on_bare_processes(const RankProcesses& how, const BareWork& work);

}  // namespace qtrain::test
