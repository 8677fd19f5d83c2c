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

/// Finds the end of a head as its bytes arrive, and refuses what servers interpret differently: lines that do not end
/// in CR LF, other control characters, and headers that continue on a second line.
class HeadScanner {
 public:
  explicit HeadScanner(const HeadLimits& limits) : limits_(limits) {}

  /// `text` begins with the head and extends the text of the previous call. Returns the size of the head once it is
  /// complete. Throws Problem 400; 414 or 431 beyond a limit.
  std::optional<std::size_t> scan(std::string_view text);

 private:
  std::optional<std::size_t> next_line(std::string_view text);

  HeadLimits limits_;
  std::size_t at_ = 0, line_ = 0, lines_ = 0;  ///< next byte, start of its line, number of lines before it
};

/// What a head says about the body that follows it.
struct BodyPlan {
  bool chunked = false;
  std::optional<std::uint64_t> length = {};

  bool is_announced() const { return chunked || length; }
  bool has_bytes() const { return chunked || length.value_or(0) > 0; }
};

/// Checks and normalizes a head: one Host, an address that begins with "/" (a host before it is removed), valid
/// numbers, one way to specify the body's length. Throws Problem 400; 501 for a transfer coding other than "chunked";
/// 505 for an unsupported version.
BodyPlan settle_head(Request& request);

/// Whether the client wants to keep the connection open.
bool keeps_connection(const Request& request);

}  // namespace qtrain::http
