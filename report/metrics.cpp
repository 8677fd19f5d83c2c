#include "report/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/os/paths.h"

namespace qtrain {
namespace {

// The last line, if it holds the totals of a run of `step` steps.
std::optional<Json> totals_of(std::string_view lines, std::int64_t step) {
  if (lines.empty()) return {};
  lines.remove_suffix(1);
  Json row = json_in(lines.substr(lines.rfind('\n') + 1));
  if (!row.contains("train_runtime") || row["step"] != step) return {};
  return row;
}

// Sums up the time of the logged rows from their token counts and tokens per second.
Pace pace_of(std::string_view lines) {
  Pace pace;
  for (std::size_t begin = 0, end; (end = lines.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    const Json row = json_in(lines.substr(begin, end - begin));
    const Json tokens = row.value("num_tokens", Json()), speed = row.value("tokens_per_second", Json());
    if (!tokens.is_number() || !speed.is_number() || speed <= 0) continue;
    pace.seconds += (tokens.get<double>() - static_cast<double>(pace.tokens)) / speed.get<double>();
    pace.tokens = tokens.get<std::int64_t>();
    pace.steps = row["step"].get<std::int64_t>();
  }
  return pace;
}

}  // namespace

ResidentMemory resident_memory() {
  ResidentMemory m;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) m.peak_mb = std::strtod(line.c_str() + 6, nullptr) / 1024;
    if (line.starts_with("VmRSS:")) m.now_mb = std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return m;
}

double process_seconds() {
  constexpr int kStartField = 22, kFirstAfterName = 3;
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string fields;
  double up = 0;
  if (!std::getline(stat, fields) || !(uptime >> up)) return 0;
  std::istringstream after_name(fields.substr(fields.rfind(')') + 1));
  for (int field = kFirstAfterName; field <= kStartField; ++field) after_name >> fields;
  return std::max(up - std::strtod(fields.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK)), 0.0);
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Json finite_or_null(double x) {
  return std::isfinite(x) ? Json(x) : Json();
}

std::string finite_or_words(const Json& x, int digits) {
  const bool finite = x.is_number() && std::isfinite(x.get<double>());
  return finite ? fmt::format("{:.{}f}", x.get<double>(), digits) : "not finite";
}

std::string rows_until(const std::filesystem::path& file, std::int64_t step) {
  std::string kept;
  if (!path_exists(file)) return kept;
  const std::string text = read_text(file);
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line(text.data() + begin, end - begin);
    const Json row = json_in(line);
    if (row.is_object() && row.contains("step") && row["step"].is_number() && row["step"] <= step)
      kept.append(line).append("\n");
  }
  return kept;
}

AppendedFile::AppendedFile(const std::filesystem::path& file) : path_(file), file_(std::fopen(file.c_str(), "a")) {
  if (!file_) fail(ErrorKind::disk, {.cause = std::strerror(errno), .place = file.string()});
}

AppendedFile::~AppendedFile() {
  if (file_) std::fclose(file_);
}

void AppendedFile::fail_write() const {
  fail(ErrorKind::disk, {.cause = std::strerror(errno),
                         .place = path_.string(),
                         .remedy = "the last checkpoint is intact; free some disk space and run the command again"});
}

void AppendedFile::append(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() || std::fflush(file_) != 0) fail_write();
}

void AppendedFile::sync() {
  if (::fsync(::fileno(file_)) != 0) fail_write();
}

MetricsFile::MetricsFile(const std::filesystem::path& file, std::int64_t resumed_step) {
  const std::string kept = resumed_step > 0 ? rows_until(file, resumed_step) : "";
  totals_ = totals_of(kept, resumed_step);
  logged_ = pace_of(kept);
  write_file(file, kept);
  file_.emplace(file);
}

}  // namespace qtrain
