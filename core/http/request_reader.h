#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/http/head_rules.h"
#include "core/http/message_parser.h"

namespace qtrain::http {

/// Where the bytes of requests come from.
class Source {
 public:
  virtual ~Source() = default;
  /// Reads at most `size` bytes. Returns 0 at the end, or a negative number on an error or timeout.
  virtual ssize_t read(char* data, std::size_t size) = 0;
};

/// Thrown if the bytes end within or before a request.
struct SourceEnded {};

/// Reads the requests of one connection, one after the other. After an exception, no more can be read, because the
/// start of the next request is unknown.
class RequestReader {
 public:
  struct Limits {
    HeadLimits head;
    std::size_t body = std::size_t{8} << 20;
  };
  RequestReader(Source& source, const Limits& limits) : source_(source), limits_(limits) {}

  /// Reads the head of the next request into `request`, which must be empty and live until the body is read. Throws
  /// Problem or SourceEnded.
  void read_head(Request& request);
  /// The body that the head announces; it must be read before the next head, or the connection closed.
  const BodyPlan& plan() const { return plan_; }
  /// Reads the body of that request; the trailers of a chunked one are dropped. Throws Problem or SourceEnded.
  void read_body();
  /// Whether bytes that follow have already been received.
  bool has_more() const { return !buffer_.empty(); }
  /// Whether they begin with this text.
  bool is_at(std::string_view text) const { return buffer_.starts_with(text); }

 private:
  void read_more(std::size_t max_bytes);

  Source& source_;
  Limits limits_;
  std::string buffer_;  ///< bytes that are received but not parsed
  std::unique_ptr<MessageParser> parser_;
  BodyPlan plan_;
};

}  // namespace qtrain::http
