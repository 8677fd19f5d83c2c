#pragma once
#include <string>

#include "dist/final_error.h"
#include "dist/store.h"
#include "dist/watchdog.h"

namespace qtrain {

/// With what a rank asks after the others. Both must outlive whoever has it.
struct RankWatch {
  Store& store;
  Watchdog& watchdog;
  int first = 0;           ///< the rank of the run that is number 0 of the collective that asks
  int stride = 1;          ///< how far its ranks are from each other in the run
  std::string group = {};  ///< a name of that collective, the same on all its ranks

  int number(int rank) const { return first + stride * rank; }
};

/// Ends with the error for a call that failed or took too long: asks which ranks are missing, for a few seconds, and
/// names them. `where`: the call; `what`: the words of the library; `remedy`: where no rank is missing.
[[noreturn]] void fail_for_lost_rank(const RankWatch& watch, const std::string& where, const std::string& what,
                                     const std::string& remedy = kResumeRemedy);
/// The same for a call that the library has given up for a reason of its own: no rank that computes is to blame.
[[noreturn]] void fail_for_broken_call(const RankWatch& watch, const std::string& where, const std::string& why);

}  // namespace qtrain
