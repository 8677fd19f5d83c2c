#include "dist/lost_rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/error.h"
#include "dist/last_words.h"

namespace qtrain {
namespace {

std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

void fail_for_lost_rank(const RankWatch& watch, const std::string& where, const std::string& what) {
  const auto [failed, silent, busy, verdict] = watch.watchdog.ask_all(watch.store);
  if (!verdict.empty())
    fail(ErrorKind::peer, {.cause = verdict, .remedy = "run the same command to go on from the last checkpoint"});
  if (!failed.empty())
    fail(ErrorKind::peer, {.cause = fmt::format("{} ended with an error{}", named(failed), kToldElsewhere)});
  const std::vector<int>& missing = silent.empty() ? busy : silent;
  if (missing.empty()) fail(ErrorKind::peer, {.cause = fmt::format("{} failed on all ranks: {}", where, what)});
  fail(ErrorKind::peer,
       {.cause = fmt::format("{} did not come to {}: {}", named(missing), where,
                             silent.empty() ? "it still computes something else" : "there is no sign of life"),
        .remedy = silent.empty() ? "set ddp_timeout to more seconds where a rank may take that long"
                                 : "run the same command to go on from the last checkpoint"});
}

}  // namespace qtrain
