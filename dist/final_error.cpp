#include "dist/final_error.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include "core/formats/json.h"
#include "dist/plain_words.h"

namespace qtrain {
namespace {

constexpr const char* kVariable = "QTRAIN_FINAL_ERROR";
constexpr char kEnd = '\n';  // JSON strings never contain it
constexpr std::string_view kAlone = "alone\n", kEndsToo = "ends\n";

// Makes each line of an error printable; there may be several.
std::string lines_of(const std::string& text) {
  constexpr std::size_t kMaxText = std::size_t{1} << 16;
  std::string lines;
  for (std::size_t begin = 0; begin <= text.size() && lines.size() < kMaxText;) {
    const std::size_t end = std::min(text.find(kEnd, begin), text.size());
    lines += (begin > 0 ? "\n" : "") + plain_words(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Writes to the launcher; returns false if there is none.
bool send(std::string_view text) {
  const char* variable = std::getenv(kVariable);
  if (!variable) return false;
  const std::string_view digits = variable;
  int descriptor = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), descriptor);
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

bool is_reported_elsewhere(const Error& error) {
  return error.text().cause.ends_with(kReportedElsewhere);
}

std::string final_error_variable(int descriptor) {
  return fmt::format("{}={}", kVariable, descriptor);
}

bool send_final_error(const Error& error) {
  const ErrorText& text = error.text();
  return send(
      dump_json({{"kind", error.exit_code()}, {"cause", text.cause}, {"place", text.place}, {"remedy", text.remedy}}) +
      kEnd);
}

void send_goes_on_alone() {
  send(kAlone);
}

void send_ends_too() {
  send(kEndsToo);
}

bool goes_on_alone(std::string_view text) {
  return text.starts_with(kAlone) && !text.substr(kAlone.size()).starts_with(kEndsToo);
}

std::optional<Error> parse_final_error(std::string_view text) {
  for (const std::string_view word : {kAlone, kEndsToo})
    if (text.starts_with(word)) text.remove_prefix(word.size());
  const auto end = text.find(kEnd);
  if (end == std::string_view::npos) return {};
  const Json fields = parse_json(std::string(text.substr(0, end)), "the final error of a rank");
  return Error(static_cast<ErrorKind>(fields.at("kind").get<int>()), {.cause = lines_of(fields.at("cause")),
                                                                      .place = lines_of(fields.at("place")),
                                                                      .remedy = lines_of(fields.at("remedy"))});
}

}  // namespace qtrain
