#pragma once
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "core/http/request_reader.h"

namespace qtrain::http {

/// A connection that is read until a moment and written without waiting long for its client, and less so once the
/// server ends. The socket is another's.
class SocketStream final : public Source {
 public:
  using Clock = std::chrono::steady_clock;

  SocketStream(int socket, std::chrono::milliseconds write_time, const std::atomic<bool>& ending)
      : socket_(socket), write_time_(write_time), ending_(ending) {}

  /// Reads fail from then on.
  void read_until(Clock::time_point end) { end_ = end; }
  /// Whether one has.
  bool timed_out() const { return timed_out_; }
  /// Whether something comes before that moment, and before the server ends.
  bool wait() { return is_ready(Direction::in, end_); }
  ssize_t read(char* data, std::size_t size) override;

  /// Writes all of it, as fast as a client takes what is not too slow; false where it does not.
  bool write(std::string_view bytes);

 private:
  enum class Direction : std::uint8_t { in, out };
  bool is_ready(Direction direction, Clock::time_point end) const;

  int socket_;
  std::chrono::milliseconds write_time_;
  const std::atomic<bool>& ending_;
  Clock::time_point end_ = Clock::time_point::max();
  bool timed_out_ = false;
};

/// Whether the other side has closed its connection.
bool has_closed(int socket);
/// The address of the other side, without its port.
std::string peer_of(int socket);

}  // namespace qtrain::http
