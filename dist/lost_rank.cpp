#include "dist/lost_rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/error.h"
#include "dist/plain_words.h"

namespace qtrain {
namespace {

std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// Ranks that are gone, or went for an error of their own; after a rank that is gone others may have failed for it.
void fail_for_gone(const Watchdog::Report& report, const std::string& where) {
  if (!report.verdict.empty()) fail(ErrorKind::peer, {.cause = plain_words(report.verdict), .remedy = kResumeRemedy});
  if (!report.silent.empty())
    fail(ErrorKind::peer,
         {.cause = fmt::format("{} did not come to {}: there is no sign of life", named(report.silent), where),
          .remedy = kResumeRemedy});
  if (!report.failed.empty())
    fail(ErrorKind::peer, {.cause = fmt::format("{} ended with an error{}", named(report.failed), kReportedElsewhere)});
}

}  // namespace

void fail_for_lost_rank(const RankWatch& watch, const std::string& where, const std::string& what,
                        const std::string& remedy) {
  const Watchdog::Report report = watch.watchdog.ask_all(watch.store);
  fail_for_gone(report, where);
  if (report.busy.empty())
    fail(ErrorKind::peer, {.cause = fmt::format("{} failed on all ranks: {}", where, what), .remedy = remedy});
  fail(ErrorKind::peer,
       {.cause = fmt::format("{} did not come to {}: it still computes something else", named(report.busy), where),
        .remedy = "set ddp_timeout to more seconds where a rank may take that long"});
}

void fail_for_broken_call(const RankWatch& watch, const std::string& where, const std::string& why) {
  fail_for_gone(watch.watchdog.ask_all(watch.store), where);
  fail(ErrorKind::peer, {.cause = fmt::format("{} failed: {}", where, why), .remedy = kResumeRemedy});
}

}  // namespace qtrain
