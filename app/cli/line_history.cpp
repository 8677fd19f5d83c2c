#include "app/cli/line_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/os/append.h"
#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "core/os/output_place.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFirstLine = "_HiStOrY_V2_\n";
constexpr std::uint64_t kMaxBytes = std::uint64_t{16} << 20;
constexpr mode_t kMode = S_IRUSR | S_IWUSR;

/// As strvis encodes a line with VIS_WHITE; characters outside ASCII are always bytes in octal.
std::string encoded(std::string_view line) {
  std::string out;
  for (const char c : line)
    if (c > ' ' && c < '\x7f' && c != '\\')
      out += c;
    else
      out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
  return out;
}

/// Whether the file is a history, empty or absent, and not one that is too large to be read.
bool is_history(const fs::path& file) {
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (in.get() < 0) return errno == ENOENT;
  struct stat about {};
  if (::fstat(in.get(), &about) != 0 || !S_ISREG(about.st_mode)) return false;
  if (static_cast<std::uint64_t>(about.st_size) > kMaxBytes) return false;
  std::string first(kFirstLine.size(), '\0');
  const ssize_t got = ::read(in.get(), first.data(), first.size());
  return got == 0 || (got > 0 && first == kFirstLine);
}

/// Creates the file, or restricts it to its user. Returns false if it cannot be written.
bool make_private(const fs::path& file) {
  const Descriptor out(::open(file.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, kMode));
  return out.get() >= 0 && ::fchmod(out.get(), kMode) == 0;
}

/// The first line and the last `longest` lines of a history that has many more.
std::string shortened(const std::string& text, std::size_t longest) {
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n'));
  if (lines <= 2 * longest) return {};
  std::size_t begin = 0;
  for (std::size_t line = lines - longest; line > 0; --line) begin = text.find('\n', begin) + 1;
  return std::string(kFirstLine) + text.substr(begin);
}

/// Replaces the file as a whole. Its new contents are never readable by others.
void replace(const fs::path& file, const std::string& text) {
  const fs::path target = behind_links(file), pending = target.string() + fmt::format(".{}.new", ::getpid());
  const Descriptor made(::open(pending.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (made.get() < 0) return;
  try {
    append_text(pending, text);
    fs::rename(pending, target);
  } catch (const std::exception&) {  // the long file stays
    std::error_code ignored;
    fs::remove(pending, ignored);
  }
}

void shorten(const fs::path& file, std::size_t longest) try {
  const std::string last = shortened(read_text(file, kMaxBytes), longest);
  if (!last.empty()) replace(file, last);
} catch (const Error&) {  // another program has removed it
}

}  // namespace

LineHistory::LineHistory(fs::path file, std::size_t longest) : file_(std::move(file)) {
  if (file_.empty()) return;
  if (!is_history(file_))
    file_.clear();
  else if (make_private(file_))
    shorten(file_, longest);
}

void LineHistory::load(History* lines) const {
  HistEvent event{};
  if (!file_.empty()) history(lines, &event, H_LOAD, file_.c_str());
}

void LineHistory::remember(std::string_view line) const {
  // The file may have been removed or replaced since.
  if (file_.empty() || !is_history(file_) || !make_private(file_)) return;
  std::error_code absent;
  const std::string text = encoded(line) + "\n";
  try {
    append_text(file_, fs::file_size(file_, absent) == 0 ? std::string(kFirstLine) + text : text);
  } catch (const Error&) {  // the disk is full, or the file has gone: the conversation goes on
  }
}

}  // namespace qtrain
