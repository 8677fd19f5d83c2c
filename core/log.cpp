#include "core/log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>

#include "core/error.h"

namespace qtrain {
namespace {

constexpr std::string_view kPrefixes[] = {"debug: ", "", "warning: ", "error: "};
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr std::string_view kEraseLine = "\r\x1b[2K";

void put(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto s = static_cast<std::int64_t>(std::min(seconds + 0.5, 9e15));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string format_progress(const Progress& p) {
  std::string line = fmt::format("{} {}", p.unit, p.step);
  if (p.total > 0) line += fmt::format("/{} {:3}%", p.total, p.step * 100 / p.total);
  if (p.loss) line += fmt::format("  loss {:.4f}", *p.loss);
  if (p.learning_rate) line += fmt::format("  lr {:.3g}", *p.learning_rate);
  if (p.tokens_per_second)
    line += fmt::format("  {:.{}f} tokens/s", *p.tokens_per_second, *p.tokens_per_second < 100 ? 1 : 0);
  if (p.eta_seconds) line += fmt::format("  ETA {}", format_duration(*p.eta_seconds));
  return line;
}

Log::Log(LogLevel level, Sinks sinks) : level_(level), sinks_(sinks), terminal_(::isatty(fileno(sinks.people)) == 1) {}

Log::~Log() {
  if (line_shown_) put(sinks_.people, "\n");
}

void Log::say(LogLevel level, std::string_view message) {
  const std::lock_guard lock(mutex_);
  if (level < level_) return;
  clear_line();
  const auto prefix = kPrefixes[static_cast<std::size_t>(level)];
  put(sinks_.people, fmt::format("{}{}\n", prefix, message));
  std::fflush(sinks_.people);
}

void Log::clear_line() {
  if (line_shown_) put(sinks_.people, kEraseLine);
  line_shown_ = false;
}

void Log::progress(const Progress& p) {
  const std::lock_guard lock(mutex_);
  if (!progress_shown_ || level_ > LogLevel::info) return;
  const bool last = p.total > 0 && p.step >= p.total;
  if (!terminal_) {
    if (p.logged || last) put(sinks_.people, format_progress(p) + "\n");
    std::fflush(sinks_.people);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!last && line_shown_ && now - drawn_ < kRedrawInterval) return;
  put(sinks_.people, std::string(kEraseLine) + format_progress(p) + (last ? "\n" : ""));
  std::fflush(sinks_.people);
  line_shown_ = !last;
  drawn_ = now;
}

void Log::stream(std::string_view text) {
  const std::lock_guard lock(mutex_);
  clear_line();
  put(sinks_.people, text);
  std::fflush(sinks_.people);
}

void Log::result(std::string_view line) {
  write_result(line, "\n");
}
void Log::result_stream(std::string_view text) {
  write_result(text, "");
}

void Log::write_result(std::string_view text, std::string_view end) {
  const std::lock_guard lock(mutex_);
  clear_line();
  put(sinks_.result, text);
  put(sinks_.result, end);
  if (std::fflush(sinks_.result) == 0 && !std::ferror(sinks_.result)) return;
  const int why = errno;
  fail(ErrorKind::disk, {.cause = std::generic_category().message(why), .place = "standard output"});
}

}  // namespace qtrain
