#include "dist/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/error.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char *kAlarm = "alarm", *kBusy = "busy", *kFailed = "failed";
constexpr std::chrono::hours kLong{24};
constexpr milliseconds kAnswer{3000};
constexpr milliseconds kAfterthought{1000};  // a rank that ends with an error may not have said so yet

std::string answer_of(int rank) {
  return fmt::format("answer/{}", rank);
}

}  // namespace

Watchdog::Watchdog(const Options& options)
    : options_(options), store_(options.server, options.patience), thread_([this] { listen(); }) {}

Watchdog::~Watchdog() {
  store_.shut_down();
  thread_.join();
}

void Watchdog::enter(const std::string& what) {
  const std::lock_guard lock(mutex_);
  waits_in_ = what;
  ++entered_;
}

void Watchdog::leave() {
  const std::lock_guard lock(mutex_);
  if (--entered_ == 0) waits_in_.clear();
}

void Watchdog::wait_on_device(const std::string& call) {
  const std::lock_guard lock(mutex_);
  device_waits_in_ = call;
}

// Once: a run that misses a rank ends.
void Watchdog::listen() try {
  while (!store_.get(kAlarm, kLong)) continue;
  const std::lock_guard lock(mutex_);
  if (failed_) return;
  const std::string& waits_in = waits_in_.empty() ? device_waits_in_ : waits_in_;
  store_.set(answer_of(options_.rank), waits_in.empty() ? kBusy : waits_in);
} catch (const Error&) {  // the store is gone, or this rank ends
}

void Watchdog::tell_failure(Store& store) {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  store.set(answer_of(options_.rank), kFailed);
}

Watchdog::Report Watchdog::ask_all(Store& store) const {
  std::vector<std::string> answers;
  store.set(kAlarm, "");
  const auto end = Clock::now() + kAnswer;
  for (int r = 0; r < options_.ranks; ++r)
    answers.push_back(
        store.get(answer_of(r), std::chrono::duration_cast<milliseconds>(end - Clock::now())).value_or(""));
  const bool is_one_silent = std::ranges::count(answers, "") > 0;  // which explains it all
  if (!is_one_silent) std::this_thread::sleep_for(kAfterthought);
  Report report;
  for (int r = 0; r < options_.ranks; ++r) {
    const std::string& answer = answers[static_cast<std::size_t>(r)];
    if (answer.empty())
      report.silent.push_back(r);
    else if (store.get(answer_of(r), milliseconds(0)) == kFailed)
      report.failed.push_back(r);
    else if (answer == kBusy && r != options_.rank)
      report.busy.push_back(r);
  }
  return report;
}

}  // namespace qtrain
