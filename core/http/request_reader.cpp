#include "core/http/request_reader.h"

#include <algorithm>
#include <array>

namespace qtrain::http {
namespace {

// The last chunk of a body. Until it has been parsed, at least this many bytes are still to come, and the parser
// asserts that it gets as many.
constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace

void RequestReader::read_more(std::size_t max_bytes) {
  std::array<char, 16384> bytes;
  const ssize_t n = source_.read(bytes.data(), std::min(max_bytes, bytes.size()));
  if (n <= 0) throw SourceEnded{};
  buffer_.append(bytes.data(), static_cast<std::size_t>(n));
}

void RequestReader::read_head(Request& request) {
  HeadScanner scanner(limits_.head);
  std::optional<std::size_t> size;
  while (!(size = scanner.scan(buffer_))) read_more(limits_.head.bytes);
  parser_ = std::make_unique<MessageParser>(request);
  const std::size_t taken = parser_->put(std::string_view(buffer_).substr(0, *size));
  if (taken != *size || !parser_->has_head()) throw Problem(400, "the head of the request cannot be read");
  parser_->limit_body(limits_.body);
  buffer_.erase(0, *size);
  plan_ = settle_head(request);
}

void RequestReader::read_body() {
  if (plan_.length.value_or(0) > limits_.body) throw Problem(413, "the body is too large");
  while (!parser_->is_done()) {
    const std::size_t least = plan_.chunked ? kLastChunk.size() : 1;
    const std::size_t taken = buffer_.size() < least ? 0 : parser_->put(buffer_);
    buffer_.erase(0, taken);
    if (parser_->is_done()) return;
    if (taken > 0 && buffer_.size() >= least) continue;
    // The rest is the size of a chunk or the trailers, which the parser only consumes as a whole.
    if (buffer_.size() >= limits_.head.bytes) throw Problem(431, "the trailers are too large");
    read_more(limits_.head.bytes - buffer_.size());
  }
}

}  // namespace qtrain::http
