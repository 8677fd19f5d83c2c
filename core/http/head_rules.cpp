#include "core/http/head_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "core/http/authority.h"

namespace qtrain::http {
namespace {

constexpr std::array<std::string_view, 8> kOnce{"host",          "content-length", "transfer-encoding", "origin",
                                                "authorization", "content-type",   "content-encoding",  "expect"};
constexpr std::array<std::string_view, 5> kWithoutBody{"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"};

[[noreturn]] void refuse(const std::string& why) {
  throw Problem(400, why);
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && byte != '\t') || byte == 0x7f;
}

// Accepts only digits, because servers interpret "+5", "0x10" and "5, 5" differently.
std::uint64_t length_of(std::string_view text) {
  if (text.empty() || !std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }))
    refuse("Content-Length is not a number");
  std::uint64_t value = 0;
  for (const char c : text) {
    if (value > (std::numeric_limits<std::uint64_t>::max() - 9) / 10) throw Problem(413, "the body is too large");
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  return value;
}

// Shortens "http://host:80/path" to "/path" if the host equals the Host header.
void settle_target(Request& request) {
  std::string& target = request.target;
  const bool visible = std::ranges::all_of(target, [](char c) { return c > ' ' && c < '\x7f' && c != '#'; });
  if (!visible) refuse("the address has a character that must be percent-encoded");
  const std::size_t scheme = target.find("://");
  if (!target.starts_with("/") && scheme != std::string::npos) {
    const std::size_t host = scheme + 3, path = std::min(target.find_first_of("/?", host), target.size());
    if (!equal_without_case(target.substr(0, scheme), "http") ||
        !equal_without_case(target.substr(host, path - host), request.header("host")))
      refuse("the host in the address is not that of the Host header");
    target = target.substr(path);
    if (!target.starts_with("/")) target.insert(0, "/");
  }
  if (!target.starts_with("/") && !(target == "*" && request.method == "OPTIONS"))
    refuse("the address does not begin with /");
}

void require_host(const Request& request) {
  if (!request.has("host") && request.version >= 11) refuse("the Host header is missing");
  if (request.has("host")) host_of(request.header("host"));
}

BodyPlan body_of(const Request& request) {
  BodyPlan plan;
  const bool has_length = request.has("content-length");
  if (request.has("transfer-encoding")) {
    if (has_length) refuse("there are both Content-Length and Transfer-Encoding");
    if (request.version < 11) refuse("HTTP/1.0 does not support Transfer-Encoding");
    if (!equal_without_case(request.header("transfer-encoding"), "chunked"))
      throw Problem(501, "the only supported transfer coding is \"chunked\"");
    plan.chunked = true;
  }
  if (has_length) plan.length = length_of(request.header("content-length"));
  return plan;
}

}  // namespace

// Returns the end of the next line, or nothing while it is incomplete. Refuses bytes that no line may contain.
std::optional<std::size_t> HeadScanner::next_line(std::string_view text) {
  for (; at_ < text.size(); ++at_) {
    const char c = text[at_];
    if (c == '\r') {
      if (at_ + 1 == text.size()) return {};
      if (text[at_ + 1] != '\n') refuse("a carriage return is not followed by a line feed");
      return at_;
    }
    if (c == '\n') refuse("a line does not end in CR LF");
    if (is_control(c)) refuse("the request has a control character");
  }
  return {};
}

std::optional<std::size_t> HeadScanner::scan(std::string_view text) {
  for (;;) {
    const auto end = next_line(text);
    if (lines_ == 0 && at_ > limits_.target + 32) throw Problem(414, "the address is too long");
    if (at_ > limits_.bytes) throw Problem(431, fmt::format("the headers have more than {} bytes", limits_.bytes));
    if (line_ < at_ && lines_ > 0 && (text[line_] == ' ' || text[line_] == '\t'))
      refuse("a header continues on a second line");
    if (!end) return {};
    const bool empty = *end == line_;
    if (empty && lines_ == 0) refuse("the request begins with an empty line");
    at_ = line_ = *end + 2;
    if (empty) return at_;
    if (++lines_ > limits_.headers + 1)
      throw Problem(431, fmt::format("there are more than {} headers", limits_.headers));
  }
}

BodyPlan settle_head(Request& request) {
  if (request.version != 10 && request.version != 11) throw Problem(505, "that version of HTTP is not supported");
  for (const std::string_view name : kOnce)
    if (std::ranges::count(request.headers, name, &Header::name) > 1)
      refuse(fmt::format("there is more than one {} header", name));
  require_host(request);
  settle_target(request);
  const BodyPlan plan = body_of(request);
  if (plan.has_bytes() && std::ranges::find(kWithoutBody, request.method) != kWithoutBody.end())
    refuse(request.method + " must not have a body");
  return plan;
}

bool keeps_connection(const Request& request) {
  if (request.version < 11) return false;
  for (const Header& h : request.headers)
    if (h.name == "connection" && lower_case(h.value).find("close") != std::string::npos) return false;
  return true;
}

}  // namespace qtrain::http
