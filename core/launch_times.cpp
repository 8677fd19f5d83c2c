#include "core/launch_times.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

namespace qtrain {
namespace {

constexpr std::chrono::milliseconds kLongestHold{2};  // far more than queueing an op takes

}  // namespace

struct StreamGate::State {
  std::atomic<bool> open{false};
};

StreamGate::StreamGate(Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu) return;
  state_ = std::make_shared<State>();
  stream.call([state = state_] {
    const auto end = std::chrono::steady_clock::now() + kLongestHold;
    while (!state->open && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
}

void StreamGate::open() {
  if (state_) state_->open = true;
}

LaunchTimes::LaunchTimes(Stream& stream) : stream_(stream) {
  check(!stream.is_observed(), "a stream already has an observer");
  stream.observe(this);
}

LaunchTimes::~LaunchTimes() {
  stream_.observe(nullptr);
}

void LaunchTimes::begin(const Launched& launched) {
  Span& span = spans_.emplace_back(Span{.name = launched.name, .detail = launched.detail});
  if (stream_.device().kind == DeviceKind::cpu) {
    span.began = Clock::now();
    return;
  }
  span.begin = std::make_unique<Event>(stream_.device());
  span.end = std::make_unique<Event>(stream_.device());
  if (!launched.is_transfer) gate_ = std::make_unique<StreamGate>(stream_);  // some transfers wait for the stream
  stream_.record(*span.begin);
}

void LaunchTimes::end() {
  Span& span = spans_.back();
  if (!span.end) {
    span.ended = Clock::now();
    return;
  }
  stream_.record(*span.end);
  gate_.reset();
}

double LaunchTimes::seconds_of(const Span& span) const {
  if (span.end) return span.end->milliseconds_since(*span.begin) / 1e3;
  return std::chrono::duration<double>(span.ended - span.began).count();
}

std::vector<LaunchTimes::Row> LaunchTimes::rows() {
  stream_.synchronize();
  std::map<std::pair<std::string, std::string>, Row> sums;
  for (const Span& span : spans_) {
    Row& row = sums[{span.name, span.detail}];
    row.name = span.name;
    row.detail = span.detail;
    ++row.launches;
    row.seconds += seconds_of(span);
  }
  std::vector<Row> rows;
  rows.reserve(sums.size());
  for (auto& [name, row] : sums) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, std::greater{}, &Row::seconds);
  return rows;
}

}  // namespace qtrain
