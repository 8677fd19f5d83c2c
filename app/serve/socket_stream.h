#pragma once
#include <httplib.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>

namespace qtrain::serve {

/// A connection that is read until a moment and written without waiting long for its client.
class SocketStream final : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  SocketStream(int socket, std::chrono::milliseconds write_time) : socket_(socket), write_time_(write_time) {}

  /// Reads fail from then on.
  void read_until(Clock::time_point end) { end_ = end; }
  /// Whether one has.
  bool timed_out() const { return timed_out_; }
  /// Whether something came before that moment; asks `given_up` now and then.
  bool wait(const std::function<bool()>& given_up);
  bool read_something() const { return read_something_; }
  void forget_what_was_read() { read_something_ = false; }

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* data, std::size_t size) override;
  ssize_t write(const char* data, std::size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool has_buffered() const { return begin_ < count_; }

  int socket_;
  std::chrono::milliseconds write_time_;
  Clock::time_point end_ = Clock::time_point::max();
  bool timed_out_ = false, read_something_ = false;
  std::array<char, 4096> buffer_;
  std::size_t begin_ = 0, count_ = 0;
};

/// Whether the other side has closed its connection.
bool has_closed(int socket);

}  // namespace qtrain::serve
