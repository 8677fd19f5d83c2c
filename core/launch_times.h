#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"

namespace qtrain {

/// Blocks a stream until it is opened, so that work queued meanwhile does not have to wait for the host once it runs.
/// Opens by itself after a short time, because the host may wait for the stream.
class StreamGate {
 public:
  /// Queues a closed gate. Does nothing on the CPU.
  explicit StreamGate(Stream& stream);
  ~StreamGate() { open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  void open();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Measures each launch that a stream queues during the life of this object: on a GPU with a pair of events around each
/// launch, behind a StreamGate, so that the host's time is not included. Meanwhile, recorded graphs run as individual
/// launches.
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
  /// Waits for the work and adds up launches of the same name and detail; the slowest come first.
  std::vector<Row> rows();
  void clear() { spans_.clear(); }

  void begin(const Launched& launched) override;
  void end() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Span {
    std::string name, detail;
    std::unique_ptr<Event> begin, end;   ///< on a GPU
    Clock::time_point began{}, ended{};  ///< on the CPU
  };
  double seconds_of(const Span& span) const;

  Stream& stream_;
  std::vector<Span> spans_;
  std::unique_ptr<StreamGate> gate_;
};

}  // namespace qtrain
