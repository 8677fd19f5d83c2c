#include "dist/watchdog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/os/stop.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;

constexpr const char* kVerdict = "verdict";
constexpr milliseconds kAnswer{3000};
constexpr milliseconds kFailureDelay{1000};  // a rank that ends with an error may not have reported it yet

std::string alarm_of(std::int64_t round) {
  return fmt::format("{}{}", kAlarms, round);
}
std::string answer_key(std::int64_t round, int rank) {
  return fmt::format("{}{}/{}", kAnswers, round, rank);
}
std::string stays_of(int rank) {
  return fmt::format("{}{}", kStays, rank);
}
std::string failure_of(int rank) {
  return fmt::format("failed/{}", rank);
}

// The calls in which the ranks of a group wait, from the answers of all ranks; nothing if one of them does not wait.
std::optional<std::vector<RankWait>> all_waits(const std::vector<std::optional<RankAnswer>>& answers,
                                               const RankWait& of) {
  std::vector<RankWait> waits;
  for (int i = 0; i < of.size; ++i) {
    const auto& answer = answers[static_cast<std::size_t>(of.rank(i))];
    const RankWait* w = answer ? answer->in(of.group) : nullptr;
    if (!w) return {};
    waits.push_back(*w);
  }
  return waits;
}

}  // namespace

Watchdog::Watchdog(const Options& options) : options_(options), store_(options.meeting, options.patience) {
  store_.set_grace(std::chrono::hours(24));  // the launcher may be suspended
  thread_ = std::thread([this] { listen(); });
}

Watchdog::~Watchdog() {
  ends_ = true;
  store_.shut_down();
  thread_.join();
}

void Watchdog::enter(const RankWait& wait, std::function<void()> give_up) {
  const std::lock_guard lock(mutex_);
  waits_.insert_or_assign(wait.group, OwnWait{.wait = wait, .give_up = std::move(give_up)});
}

void Watchdog::fail(const std::string& group) {
  const std::lock_guard lock(mutex_);
  if (const auto it = waits_.find(group); it != waits_.end()) it->second.give_up = {};
}

void Watchdog::leave(const std::string& group) {
  const std::lock_guard lock(mutex_);
  waits_.erase(group);
}

void Watchdog::wait_on_device(const std::string& call) {
  device_waits_ = !call.empty();
}

void Watchdog::listen() try {
  const milliseconds slice = std::min(options_.check_after, options_.stop_patience) / 4;
  store_.set(stays_of(options_.rank), "");
  while (true) {
    if (store_.get(alarm_of(round_), slice)) answer(round_);
    if (!misses_rank_ && store_.get(kMissing, {})) misses_rank_ = true;
    check_waits();
  }
} catch (const std::exception&) {
  if (ends_) return;
  misses_rank_ = true;  // the store is gone
  const std::lock_guard lock(mutex_);
  end_waits();
}

void Watchdog::answer(std::int64_t round) {
  RankAnswer mine;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [group, own] : waits_) mine.waits.push_back(own.wait);
    mine.device_waits = device_waits_;
    round_ = round + 1;
  }
  store_.set(answer_key(round, options_.rank), text_of(mine));
}

void Watchdog::announce_failure(Store& store) {
  store.set(failure_of(options_.rank), "");
}

void Watchdog::announce_end(Store& store) {
  store.set(stays_of(options_.rank), "");
}

// The first to ask opens the round; others who ask at the same time share it.
Watchdog::Answers Watchdog::ask(Store& store, const Question& question) {
  constexpr milliseconds kSlice{100};
  store.set(alarm_of(question.round), "");
  const auto end = Clock::now() + kAnswer;
  Answers all;
  for (int i = 0; i < question.of.size; ++i) {
    const std::string key = answer_key(question.round, question.of.rank(i));
    std::optional<std::string> said = store.get(key, {});
    while (!said && Clock::now() < end) {
      if (question.meanwhile) question.meanwhile();
      said = store.get(key, kSlice);
    }
    all.push_back(said ? std::optional(rank_answer_of(*said)) : std::nullopt);
  }
  return all;
}

Watchdog::Report Watchdog::ask_all(Store& store) const {
  const auto round = [&] {
    const std::lock_guard lock(mutex_);
    return round_;
  }();
  const Answers answers = ask(store, {.round = round, .of = everybody()});
  const bool all_answered = std::ranges::all_of(answers, [](const auto& a) { return a.has_value(); });
  if (all_answered) std::this_thread::sleep_for(kFailureDelay);  // otherwise the silent ranks explain it
  Report report{.verdict = store.get(kVerdict, {}).value_or("")};
  for (int r = 0; r < options_.ranks; ++r) {
    const auto& answer = answers[static_cast<std::size_t>(r)];
    if (store.get(failure_of(r), {}))
      report.failed.push_back(r);
    else if (!answer)
      report.silent.push_back(r);
    else if (answer->computes() && r != options_.rank)
      report.busy.push_back(r);
  }
  if (!report.verdict.empty()) return report;
  const std::lock_guard lock(mutex_);
  for (const auto& [group, own] : waits_)
    if (const auto waits = all_waits(answers, own.wait); waits && report.verdict.empty())
      report.verdict = different_calls(*waits, Behind::is_stuck);  // this rank has waited long enough
  return report;
}

RankWait Watchdog::everybody() const {
  return {.size = options_.ranks};
}

// Called by the thread: it answers its own question, and those of others meanwhile.
Watchdog::Answers Watchdog::ask_again(const RankWait& of) {
  const std::int64_t round = round_;
  answer(round);
  return ask(store_, {.round = round, .of = of, .meanwhile = [this] {
                        if (store_.get(alarm_of(round_), {})) answer(round_);
                      }});
}

void Watchdog::check_waits() {
  std::vector<RankWait> long_ones;
  bool stops = false, is_long = false;
  const auto now = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    for (auto& [group, own] : waits_) {
      const auto again = own.seen.empty() ? std::max(own.checked - own.since, Clock::duration(options_.check_after))
                                          : Clock::duration(options_.check_after / 4);
      stops |= stop_requested() && now - own.since >= options_.stop_patience;
      is_long |= now - own.since >= options_.check_after;
      if (options_.rank != own.wait.first || now - own.checked < again) continue;
      own.checked = now;
      long_ones.push_back(own.wait);
    }
  }
  if (is_long && (misses_rank_ || store_.get(kVerdict, {}))) {
    const std::lock_guard lock(mutex_);
    return end_waits();  // no connection breaks between ranks that wait for each other
  }
  for (const RankWait& wait : long_ones) check_wait(wait);
  if (stops && now - asked_for_stop_ >= options_.stop_patience) check_for_silent();
}

// The ranks of a collective make its calls in the same order, so if all of them wait in it, in different calls, and
// that does not change, it will never end. The first rank of the collective asks for all.
void Watchdog::check_wait(const RankWait& wait) {
  const Answers asked = ask_again(wait);
  Answers answers(static_cast<std::size_t>(options_.ranks));
  for (int i = 0; i < wait.size; ++i)
    answers[static_cast<std::size_t>(wait.rank(i))] = asked[static_cast<std::size_t>(i)];
  std::vector<RankWait> waits = all_waits(answers, wait).value_or(std::vector<RankWait>());
  const std::string different = different_calls(waits);
  if (different.empty()) waits.clear();
  const std::lock_guard lock(mutex_);
  const auto it = waits_.find(wait.group);
  if (it == waits_.end() || it->second.wait != wait) return;
  if (!different.empty() && waits == it->second.seen) give_up(different);
  it->second.seen = waits;
}

// A rank that was asked to stop need not wait until ddp_timeout for one that is gone.
void Watchdog::check_for_silent() {
  asked_for_stop_ = Clock::now();
  const Answers answers = ask_again(everybody());
  std::vector<int> silent;
  for (int r = 0; r < options_.ranks; ++r)
    if (!answers[static_cast<std::size_t>(r)] && !store_.get(failure_of(r), {})) silent.push_back(r);
  if (silent.empty()) return;
  const std::lock_guard lock(mutex_);
  give_up(fmt::format("{} no sign of life, so the run stops without {} and without a checkpoint of this step",
                      silent.size() == 1 ? fmt::format("rank {} gives", silent[0])
                                         : fmt::format("ranks {} give", fmt::join(silent, ", ")),
                      silent.size() == 1 ? "it" : "them"));
}

void Watchdog::give_up(const std::string& verdict) {
  store_.set(kVerdict, verdict);
  end_waits();
}

// Needs the lock, because those who wait may leave and be gone.
void Watchdog::end_waits() {
  for (const auto& [group, own] : waits_)
    if (own.give_up) own.give_up();
}

}  // namespace qtrain
