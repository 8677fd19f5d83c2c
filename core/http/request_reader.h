#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "core/http/head_rules.h"
#include "core/http/message_parser.h"

namespace qtrain::http {

/// Where the bytes of requests come from.
class Source {
 public:
  virtual ~Source() = default;
  /// At most `size` bytes; 0: there are no more, below 0: they do not come.
  virtual ssize_t read(char* data, std::size_t size) = 0;
};

/// The bytes ended within a request, or before one.
struct SourceEnded {};

/// Reads the requests of one connection, one after the other. After anything that it throws no more can be read: where
/// the next request would begin is not known.
class RequestReader {
 public:
  struct Limits {
    HeadLimits head;
    std::size_t body = std::size_t{8} << 20;
  };
  RequestReader(Source& source, const Limits& limits) : source_(source), limits_(limits) {}

  /// Reads the head of the next request into an empty one, which outlives its body's reading. Problem, SourceEnded.
  void read_head(Request& request);
  /// What that head announces; it has to be read before the next head, or the connection ended.
  const BodyPlan& plan() const { return plan_; }
  /// Reads the body of that request; the trailers of a chunked one are dropped. Problem, SourceEnded.
  void read_body();
  /// Whether something of what comes next is here.
  bool has_more() const { return !buffer_.empty(); }

 private:
  void read_more(std::size_t most);

  Source& source_;
  Limits limits_;
  std::string buffer_;  ///< what is read and not taken
  std::unique_ptr<MessageParser> parser_;
  BodyPlan plan_;
};

}  // namespace qtrain::http
