#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/http/message.h"
#include "core/os/descriptor.h"

namespace qtrain::http::testing {

/// A reply as a client reads it; status -1 where none came.
struct Fetched {
  int status = -1;
  std::string head, body;

  std::string header(const std::string& name) const {
    for (std::size_t at = 0; (at = head.find("\r\n", at)) != std::string::npos;) {
      at += 2;
      const std::size_t colon = head.find(':', at), end = head.find("\r\n", at);
      if (colon < end && equal_without_case(head.substr(at, colon - at), name))
        return head.substr(colon + 2, end - colon - 2);
    }
    return {};
  }
};

/// A connection for sending and receiving raw bytes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }

  /// Returns false if the server no longer accepts data.
  bool send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  /// Receives more data within a time; false if the server closed the connection or sent nothing.
  bool receive(std::chrono::milliseconds time = std::chrono::seconds(20)) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(time.count())) <= 0) return false;
    char bytes[16384];
    const ssize_t n = ::recv(socket_.get(), bytes, sizeof bytes, 0);
    closed_ = n <= 0;
    if (n > 0) buffer_.append(bytes, static_cast<std::size_t>(n));
    return n > 0;
  }
  /// Receives everything until the server closes the connection.
  std::string receive_all() {
    while (receive()) continue;
    return std::exchange(buffer_, {});
  }
  /// Receives what arrives within that time.
  std::string receive_some(std::chrono::milliseconds time) {
    while (receive(time)) continue;
    return std::exchange(buffer_, {});
  }
  /// Receives the next reply, whose length its header states.
  Fetched fetch(bool of_head = false) {
    Fetched out;
    const std::string head = until("\r\n\r\n");
    if (head.empty()) return out;
    out.head = head;
    out.status = std::stoi(head.substr(head.find(' ') + 1));
    if (out.status == 100) return out;
    if (out.header("Transfer-Encoding") == "chunked") {
      for (std::size_t size; (size = std::stoul(until("\r\n"), nullptr, 16)) > 0;)
        out.body += take(size + 2).substr(0, size);
      take(2);
    } else if (!out.header("Content-Length").empty()) {
      if (!of_head) out.body = take(std::stoul(out.header("Content-Length")));
    } else {
      out.body = receive_all();
    }
    return out;
  }
  bool is_closed() const { return closed_; }
  int fd() const { return socket_.get(); }
  void close() { socket_.close(); }

 private:
  std::string until(const std::string& mark) {
    std::size_t at;
    while ((at = buffer_.find(mark)) == std::string::npos)
      if (!receive()) return {};
    return take(at + mark.size());
  }
  std::string take(std::size_t size) {
    while (buffer_.size() < size && receive()) continue;
    std::string out = buffer_.substr(0, size);
    buffer_.erase(0, out.size());
    return out;
  }

  Descriptor socket_;
  std::string buffer_;
  bool closed_ = false;
};

/// "GET /x HTTP/1.1" with a Host, those headers and the length of the body.
inline std::string request_text(const std::string& line, const std::vector<Header>& headers = {},
                                const std::string& body = {}) {
  std::string text = line + " HTTP/1.1\r\n", host = "Host: 127.0.0.1\r\n";
  for (const Header& h : headers) {
    if (equal_without_case(h.name, "host")) host.clear();
    text += h.name + ": " + h.value + "\r\n";
  }
  if (!body.empty() || line.starts_with("POST")) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + host + "\r\n" + body;
}

}  // namespace qtrain::http::testing
