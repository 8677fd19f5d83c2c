#pragma once
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "core/http/request_reader.h"

namespace qtrain::http {

/// A connection with a deadline for reads and a limit on how slow a client may be for writes; both are shorter once the
/// server is ending. Does not own the socket.
class SocketStream final : public Source {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::duration<double, std::milli>;

  SocketStream(int socket, std::chrono::milliseconds write_time, const std::atomic<bool>& ending)
      : socket_(socket), write_time_(write_time), ending_(ending) {}

  /// Sets the time from which reads fail.
  void read_until(Clock::time_point end) { end_ = end; }
  /// Whether a read has failed for that reason.
  bool timed_out() const { return timed_out_; }
  /// Waits for data; returns false if none arrives before that time or before the server ends.
  bool wait() { return is_ready(Direction::in, end_); }
  ssize_t read(char* data, std::size_t size) override;

  /// Begins an answer, for all of which a client that reads too slowly gets `write_time` more.
  void begin_answer() { patience_ = write_time_; }
  /// Writes all bytes. Returns false if the client is too slow or gone.
  bool write(std::string_view bytes);

 private:
  enum class Direction : std::uint8_t { in, out };
  bool is_ready(Direction direction, Clock::time_point end) const;

  int socket_;
  std::chrono::milliseconds write_time_;
  Milliseconds patience_ = write_time_;  ///< what is left of it in this answer
  const std::atomic<bool>& ending_;
  Clock::time_point end_ = Clock::time_point::max();
  bool timed_out_ = false;
};

/// Whether the other side has closed its connection.
bool has_closed(int socket);
/// The address of the other side, without its port.
std::string peer_of(int socket);

}  // namespace qtrain::http
