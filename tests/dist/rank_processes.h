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
  std::vector<std::string> variables = {};  ///< "NAME=value", in addition to the variables of each rank
  int devices = 0;                          ///< of the harness; 0: one per rank
  int hosts = 1;                            ///< number of machines that the ranks pretend to be on
};

/// Why several ranks cannot use GPUs here; empty if they can.
std::string rank_processes_problem();

/// Runs `work` on ranks that each have a GPU, or share the only one. Each rank is a process that runs only the calling
/// test, up to this call, which does not return there; so a test can call it only once. If an expectation fails in a
/// rank, the test fails.
std::vector<RankEnd> on_processes(const RankProcesses& how, const RankWork& work);

/// The same without a group of ranks: `work` gets the rank and a store to meet at, and can find the stand-in for NCCL.
using BareWork = std::function<void(int rank, Store& store)>;
std::vector<RankEnd> on_bare_processes(const RankProcesses& how, const BareWork& work);

}  // namespace qtrain::test
