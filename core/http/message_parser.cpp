#include "core/http/message_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <cctype>
#include <functional>
#include <limits>

namespace qtrain::http {
namespace {

namespace beast = boost::beast;
using Code = beast::error_code;

constexpr std::ptrdiff_t kMaxSizeDigits = 16;  // of a chunk: those of 64 bits

std::string text_of(beast::string_view text) {
  return {text.data(), text.size()};
}

}  // namespace

// These have no `override`, because only later versions of Beast have the function for trailers.
// NOLINTBEGIN(modernize-use-override)
struct MessageParser::Impl : beast::http::basic_parser<true> {
  explicit Impl(Request& to) : request(to) {}

  void on_request_impl(beast::http::verb, beast::string_view method, beast::string_view target, int version, Code&) {
    request.method = text_of(method);
    request.target = text_of(target);
    request.version = version;
  }
  void on_response_impl(int, beast::string_view, int, Code&) {}
  void on_field_impl(beast::http::field, beast::string_view name, beast::string_view value, Code& code) {
    if (!whole_head) request.headers.push_back({lower_case(text_of(name)), text_of(value)});
    check_lines(name, value, code);
  }
  void on_trailer_field_impl(beast::http::field, beast::string_view name, beast::string_view value, Code& code) {
    check_lines(name, value, code);
  }
  void on_header_impl(Code&) { whole_head = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, Code&) {}
  std::size_t on_body_impl(beast::string_view piece, Code&) { return add(piece); }
  // The extensions begin where the digits of the size end. Servers differ in how many zeros may precede a number.
  void on_chunk_header_impl(std::uint64_t, beast::string_view extensions, Code& code) {
    const char* const end = extensions.data();
    const char* digits = end;
    while (digits != input_begin && std::isxdigit(static_cast<unsigned char>(digits[-1])) != 0) --digits;
    if (end - digits > kMaxSizeDigits) code = beast::http::error::bad_chunk;
    if (!extensions.empty()) code = beast::http::error::bad_chunk_extension;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view piece, Code&) { return add(piece); }
  void on_finish_impl(Code&) {}

  std::size_t add(beast::string_view piece) {
    request.body.append(piece.data(), piece.size());
    return piece.size();
  }

  // Refuses values that continue on another line: Beast joins their lines in a buffer of its own; if the first line is
  // empty, there is a line feed between name and value. The scanner checks only heads, not trailers.
  void check_lines(beast::string_view name, beast::string_view value, Code& code) const {
    const std::less<> before;
    const char* const end = name.data() + name.size();
    const bool here = !before(value.data(), end) && !before(input_end, value.data() + value.size());
    if (!here || std::find(end, value.data(), '\n') != value.data()) code = beast::http::error::bad_obs_fold;
  }

  Request& request;
  const char *input_begin = nullptr, *input_end = nullptr;  // the bytes that are being parsed
  bool whole_head = false;
};
// NOLINTEND(modernize-use-override)

MessageParser::MessageParser(Request& request) : impl_(std::make_unique<Impl>(request)) {
  impl_->eager(true);
  impl_->body_limit(std::numeric_limits<std::uint64_t>::max());
  impl_->header_limit(std::numeric_limits<std::uint32_t>::max());  // the scanner has its own limit
}

MessageParser::~MessageParser() = default;

std::size_t MessageParser::put(std::string_view bytes) {
  Code code;
  impl_->input_begin = bytes.data();
  impl_->input_end = bytes.data() + bytes.size();
  const std::size_t taken = impl_->put(boost::asio::const_buffer(bytes.data(), bytes.size()), code);
  if (!code || code == beast::http::error::need_more) return taken;
  if (code == beast::http::error::body_limit) throw Problem(413, "the body is too large");
  if (code == beast::http::error::bad_version) throw Problem(505, "that version of HTTP is not supported");
  if (code == beast::http::error::bad_obs_fold) throw Problem(400, "a header or trailer continues on a second line");
  throw Problem(400, "the request cannot be read: " + code.message());
}

void MessageParser::limit_body(std::size_t bytes) {
  impl_->body_limit(bytes);
}

bool MessageParser::has_head() const {
  return impl_->is_header_done();
}

bool MessageParser::is_done() const {
  return impl_->is_done();
}

}  // namespace qtrain::http
