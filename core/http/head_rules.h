#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/http/message.h"

namespace qtrain::http {

struct HeadLimits {
  std::size_t bytes = std::size_t{64} << 10;  ///< of request line and headers
  std::size_t target = 8192;                  ///< of the address
  std::size_t headers = 100;
};

/// Finds the end of a head as its bytes come, and refuses what servers read in different ways: lines that do not end in
/// CR LF, other control characters, and headers that go on in a second line.
class HeadScanner {
 public:
  explicit HeadScanner(const HeadLimits& limits) : limits_(limits) {}

  /// `text` begins with the head and is what the last call saw and more. Returns the size of the head where it is
  /// whole. Problem: 400; 414 and 431 beyond a limit.
  std::optional<std::size_t> scan(std::string_view text);

 private:
  std::optional<std::size_t> next_line(std::string_view text);

  HeadLimits limits_;
  std::size_t at_ = 0, line_ = 0, lines_ = 0;  ///< the next byte, where its line begins, lines before that one
};

/// What a head says of the body that follows it.
struct BodyPlan {
  bool chunked = false;
  std::optional<std::uint64_t> length = {};

  bool is_announced() const { return chunked || length; }
  bool has_bytes() const { return chunked || length.value_or(0) > 0; }
};

/// Checks what a head means: one Host, an address that begins with "/" (one with a host loses it), numbers that are
/// numbers, one way to tell the body's length. Problem: 400; 501 for a transfer coding but "chunked"; 505 for a
/// version.
BodyPlan settle_head(Request& request);

/// Whether the client lets the connection stay.
bool keeps_connection(const Request& request);

}  // namespace qtrain::http
