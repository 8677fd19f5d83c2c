#include "core/log.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <stdio_ext.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cmath>
#include <system_error>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/os/stop.h"
#include "core/plural.h"
#include "core/secrets.h"
#include "core/utf8.h"

namespace qtrain {
namespace {

struct Prefix {
  std::string_view text, color;
};
constexpr std::array<Prefix, 4> kPrefixes{{{"debug:", ""}, {"", ""}, {"warning:", kYellow}, {"error:", kRed}}};
constexpr std::array<const char*, 4> kLevels{"debug", "info", "warning", "error"};
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);

bool put(std::FILE* file, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size();
}

/// Waits until a write of up to PIPE_BUF bytes does not block. Returns false, with EINTR, once a stop was requested.
bool wait_for_reader(std::FILE* file) {
  constexpr int kMilliseconds = 50;  // not longer: a signal may also come right before a wait, or to another thread
  pollfd writable{.fd = ::fileno(file), .events = POLLOUT, .revents = 0};
  if (writable.fd < 0) return true;  // an in-memory file
  for (int ready = 0; ready == 0 || (ready < 0 && errno == EINTR);) {
    ready = ::poll(&writable, 1, kMilliseconds);
    if (ready <= 0 && signal_came()) {
      errno = EINTR;
      return false;
    }
  }
  return true;
}

bool put_for_reader(std::FILE* file, std::string_view text) {
  for (; !text.empty(); text.remove_prefix(std::min<std::size_t>(text.size(), PIPE_BUF)))
    if (!wait_for_reader(file) || !put(file, text.substr(0, PIPE_BUF)) || std::fflush(file) != 0) return false;
  return true;
}

/// Formats a message; on a terminal, it is wrapped between words. Lines after the first are indented, so that no line
/// of a name or an external text looks like a separate message.
std::string message_line(const Prefix& prefix, std::string_view message, const Terminal& terminal, int width) {
  const std::string text = fmt::format("{}{}{}", prefix.text, prefix.text.empty() ? "" : " ", message);
  std::string out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (begin > 0 && !line.empty() && line[0] != ' ') line.insert(0, "  ");
    if (terminal.redraws)
      for (const std::string& part : wrapped(line, width)) out += part + "\n";
    else
      out += fmt::format("{}\n", line);
    begin = end + 1;
  }
  if (!terminal.colors || prefix.color.empty()) return out;
  return fmt::format("{}{}{}{}", prefix.color, prefix.text, kPlain, out.substr(prefix.text.size()));
}

/// The members of a progress event.
std::string members_of(const Progress& p) {
  Json json{{"step", p.step}, {"total", p.total}, {"unit", p.unit}};
  const auto add = [&](const char* key, const std::optional<double>& x) {
    if (x) json[key] = std::isfinite(*x) ? Json(*x) : Json();
  };
  add("epoch", p.epoch);
  add("loss", p.loss);
  add("learning_rate", p.learning_rate);
  add("tokens_per_second", p.tokens_per_second);
  add("eta_seconds", p.eta_seconds);
  add("memory_bytes", p.memory_bytes);
  add("data_wait", p.data_wait);
  return dump_json(json);
}

/// Draws lines, each cut to `width` columns, and moves the cursor back to where it was.
std::string drawn(std::string_view lines, int width) {
  std::string all;
  int above = 0;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    all += first_columns(line, std::max(width, 1));
    if (!lines.empty()) all += '\n', ++above;
  }
  if (above > 0) all += fmt::format("\x1b[{}A", above);
  return all.empty() ? all : all + "\r";
}

}  // namespace

Log::Log(LogLevel level, Sinks sinks) : level_(level), sinks_(sinks), terminal_(terminal_of(fileno(sinks.people))) {}

Log::~Log() {
  end_live();
  const auto events = std::move(events_);
  if (events && events->dropped() > 0)
    warn("{} could not be written to --events: the reader was too slow, or the disk is full",
         counted(events->dropped(), "event"));
}

int Log::width() const {
  return terminal_width(fileno(sinks_.people)) - 1;  // a full line would move the cursor to the next line
}

// Makes one write per change, so that a terminal never shows half of it. The live line stays below the messages. If
// nobody reads the output, this waits only until a stop is requested.
void Log::show(std::string_view text, std::string live) {
  std::string all;
  if (!live_line_.empty() || !live.empty() || shares_terminal_) all += kEraseBelow;
  all += text;
  all += drawn(live, width());
  live_line_ = std::move(live);
  if (!put_for_reader(sinks_.people, all)) __fpurge(sinks_.people);  // so that a run that stops can still save
}

void Log::say(LogLevel level, std::string_view said) {
  constexpr std::size_t kKeptWarnings = 1000;
  const std::string message = printable(without_credentials(said));
  if (events_ && level != LogLevel::debug)
    event("message", dump_json({{"level", kLevels[static_cast<std::size_t>(level)]}, {"text", message}}));
  const std::lock_guard lock(mutex_);
  if (level == LogLevel::warning && warnings_.size() < kKeptWarnings) warnings_.push_back(message);
  if (level < level_) return;
  show(message_line(kPrefixes[static_cast<std::size_t>(level)], message, terminal_, width()), live_line_);
}

std::vector<std::string> Log::warnings() {
  const std::lock_guard lock(mutex_);
  return warnings_;
}

void Log::progress(const Progress& p) {
  const bool last = p.total > 0 && p.step >= p.total;
  if (!p.logged && !last) return live(p);
  if (events_) event("progress", members_of(p));
  const std::lock_guard lock(mutex_);
  if (level_ > LogLevel::info) return;
  const std::string row = terminal_.redraws ? format_progress(p, width()) : format_progress(p);
  show(row + "\n", shows_live() && !last ? format_live(p, width()) : "");
}

void Log::live(const Progress& p) {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (!shows_live() || (!live_line_.empty() && now - drawn_ < kRedrawInterval)) return;
  drawn_ = now;
  show("", format_live(p, width()));
}

void Log::live_block(const std::function<std::vector<std::string>(int columns)>& make) {
  const std::lock_guard lock(mutex_);
  if (!shows_live()) return;
  std::vector<std::string> lines = make(width());
  const auto height = static_cast<std::size_t>(terminal_height(fileno(sinks_.people)));
  if (lines.size() > height) lines.resize(height);
  for (std::string& line : lines) line = printable(line);
  show("", fmt::format("{}", fmt::join(lines, "\n")));
}

void Log::end_live() {
  const std::lock_guard lock(mutex_);
  if (!live_line_.empty()) show("", "");
}

void Log::share_terminal() {
  shares_terminal_ = terminal_.redraws;
}

void Log::pass_on(std::string_view line) {
  const std::lock_guard lock(mutex_);
  show(printable(without_credentials(line)), live_line_);
}

void Log::stream(std::string_view text) {
  const std::lock_guard lock(mutex_);
  show(printable(without_credentials(text)), "");
}

void Log::result(std::string_view line) {
  if (form_ == ResultForm::lines) write_result(printable(without_credentials(line)), "\n");
}
void Log::result_stream(std::string_view text) {
  if (form_ == ResultForm::lines) write_result(text, "");
}

void Log::document(std::string_view json) {
  if (form_ != ResultForm::document) return;
  check(!document_given_, "a command writes its result twice");
  document_given_ = true;
  write_result(json, "\n");
}

void Log::write_result(std::string_view text, std::string_view end) {
  end_live();
  const std::lock_guard lock(result_mutex_);
  if (put_for_reader(sinks_.result, std::string(text).append(end))) return;
  const int why = errno;
  __fpurge(sinks_.result);  // otherwise, exit would try to write it again
  if (why == EINTR) fail(ErrorKind::stopped, {.cause = "stopped by a signal", .place = "standard output"});
  reader_gone_ = why == EPIPE;
  fail(ErrorKind::disk, {.cause = std::generic_category().message(why), .place = "standard output"});
}

}  // namespace qtrain
