#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"

namespace qtrain {

/// Holds a stream until it is opened, so that what the host queues meanwhile runs without waiting for the host. Opens
/// by itself after a while, for work that waits for the stream.
class StreamGate {
 public:
  /// Queues the gate, closed. On the CPU there is nothing to hold.
  explicit StreamGate(Stream& stream);
  ~StreamGate() { open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  void open();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Times of all that a stream queues while this lives, piece by piece: on a GPU by a pair of events around each launch,
/// which gets a head start on the device so that the host's time is not a part of it. Recorded graphs run as single
/// launches meanwhile.
class LaunchTimes final : public LaunchObserver {
 public:
  explicit LaunchTimes(Stream& stream);
  ~LaunchTimes() override;
  LaunchTimes(const LaunchTimes&) = delete;
  LaunchTimes& operator=(const LaunchTimes&) = delete;

  struct Row {
    std::string name, detail;
    std::int64_t launches = 0;
    double seconds = 0;
  };
  /// Waits for the work and adds up launches of one name and detail; what took longest comes first.
  std::vector<Row> rows();
  void clear() { spans_.clear(); }

  void begin(const Launched& launched) override;
  void end() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Span {
    std::string name, detail;
    std::unique_ptr<Event> begin, end;   ///< of a GPU
    Clock::time_point began{}, ended{};  ///< of a processor
  };
  double seconds_of(const Span& span) const;

  Stream& stream_;
  std::vector<Span> spans_;
  std::unique_ptr<StreamGate> gate_;
};

}  // namespace qtrain
