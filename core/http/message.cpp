#include "core/http/message.h"

#include <algorithm>
#include <array>
#include <utility>

namespace qtrain::http {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

constexpr std::array<std::pair<int, std::string_view>, 19> kReasons{{{200, "OK"},
                                                                     {400, "Bad Request"},
                                                                     {401, "Unauthorized"},
                                                                     {403, "Forbidden"},
                                                                     {404, "Not Found"},
                                                                     {405, "Method Not Allowed"},
                                                                     {408, "Request Timeout"},
                                                                     {411, "Length Required"},
                                                                     {413, "Content Too Large"},
                                                                     {414, "URI Too Long"},
                                                                     {415, "Unsupported Media Type"},
                                                                     {417, "Expectation Failed"},
                                                                     {429, "Too Many Requests"},
                                                                     {431, "Request Header Fields Too Large"},
                                                                     {499, "Client Closed Request"},
                                                                     {500, "Internal Server Error"},
                                                                     {501, "Not Implemented"},
                                                                     {503, "Service Unavailable"},
                                                                     {505, "HTTP Version Not Supported"}}};

}  // namespace

std::string_view Request::header(std::string_view name) const {
  const auto at = std::ranges::find(headers, name, &Header::name);
  return at == headers.end() ? std::string_view() : std::string_view(at->value);
}

bool Request::has(std::string_view name) const {
  return std::ranges::find(headers, name, &Header::name) != headers.end();
}

std::string_view Request::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::string_view reason_of(int status) {
  const auto at = std::ranges::find(kReasons, status, &std::pair<int, std::string_view>::first);
  return at == kReasons.end() ? "Unknown" : at->second;
}

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), lower);
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? digit_of(text[i + 2]) : -1;
    if (high < 0 || low < 0) throw Problem(400, "the address has a % that is not followed by two hexadecimal digits");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace qtrain::http
