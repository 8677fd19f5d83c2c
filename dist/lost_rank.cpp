#include "dist/lost_rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/error.h"
#include "dist/plain_words.h"

namespace qtrain {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// Fails because of ranks that are gone, or else of ranks that failed: once one is gone, others may fail because of it.
void fail_for_gone(const Watchdog::Report& report, const std::string& where) {
  if (!report.verdict.empty()) fail(ErrorKind::peer, {.cause = plain_words(report.verdict), .remedy = kResumeRemedy});
  if (!report.silent.empty())
    fail(ErrorKind::peer,
         {.cause = fmt::format("{} did not reach {}: there is no sign of life", ranks_text(report.silent), where),
          .remedy = kResumeRemedy});
  if (!report.failed.empty())
    fail(ErrorKind::peer,
         {.cause = fmt::format("{} ended with an error{}", ranks_text(report.failed), kReportedElsewhere)});
}

}  // namespace

void fail_for_lost_rank(const RankWatch& watch, const std::string& where, const std::string& what,
                        const std::string& remedy) {
  const Watchdog::Report report = watch.watchdog.ask_all(watch.store);
  fail_for_gone(report, where);
  if (report.busy.empty())
    fail(ErrorKind::peer, {.cause = fmt::format("{} failed on all ranks: {}", where, what), .remedy = remedy});
  fail(ErrorKind::peer, {.cause = fmt::format("{} did not reach {}, but {} still computing something else",
                                              ranks_text(report.busy), where, report.busy.size() == 1 ? "is" : "are"),
                         .remedy = "raise ddp_timeout if a rank may take that long"});
}

void fail_for_broken_call(const RankWatch& watch, const std::string& where, const std::string& why) {
  fail_for_gone(watch.watchdog.ask_all(watch.store), where);
  fail(ErrorKind::peer, {.cause = fmt::format("{} failed: {}", where, why), .remedy = kResumeRemedy});
}

}  // namespace qtrain
