#pragma once
#include <string>

#include "dist/final_error.h"
#include "dist/store.h"
#include "dist/watchdog.h"

namespace qtrain {

/// What a rank needs to ask about the others. The store and the watchdog must outlive it.
struct RankWatch {
  Store& store;
  Watchdog& watchdog;
  int first = 0;           ///< the global rank of rank 0 of the collective that asks
  int stride = 1;          ///< the distance between the global ranks of its ranks
  std::string group = {};  ///< a name of that collective, the same on all its ranks

  int number(int rank) const { return first + stride * rank; }
};

/// Throws the error for a call that failed or took too long, after asking for a few seconds which ranks are missing.
/// `where` is the call, `what` the library's message, and `remedy` the advice if no rank is missing.
[[noreturn]] void fail_for_lost_rank(const RankWatch& watch, const std::string& where, const std::string& what,
                                     const std::string& remedy = kResumeRemedy);
/// The same for a call that the library has aborted for its own reason: ranks that are computing are not to blame.
[[noreturn]] void fail_for_broken_call(const RankWatch& watch, const std::string& where, const std::string& why);

}  // namespace qtrain
