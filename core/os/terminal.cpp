#include "core/os/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace qtrain {
namespace {

constexpr int kUsualWidth = 80, kUsualHeight = 24;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Terminal terminal_of(int descriptor) {
  const std::string_view kind = environment("TERM");
  const bool redraws = ::isatty(descriptor) == 1 && !kind.empty() && kind != "dumb";
  return {.redraws = redraws, .colors = redraws && environment("NO_COLOR").empty()};
}

bool shows_unicode() {
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (locale.empty()) locale = environment(name);
  std::erase(locale, '-');
  std::ranges::transform(locale, locale.begin(), [](unsigned char c) { return std::tolower(c); });
  return locale.find("utf8") != locale.npos;
}

std::string_view first_columns(std::string_view line, int columns) {
  std::size_t end = 0;
  for (int column = 0; end < line.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(line[end]) & 0xC0) != 0x80;
    if (begins && column++ >= columns) break;
  }
  return line.substr(0, end);
}

int terminal_width(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int columns = std::atoi(std::string(environment("COLUMNS")).c_str());
  return columns > 0 ? columns : kUsualWidth;
}

std::vector<std::string> wrapped(std::string_view line, int columns) {
  const auto room = static_cast<std::size_t>(std::max(columns, 1));
  const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
  std::vector<std::string> lines;
  std::string out(line.substr(0, indent));
  line.remove_prefix(indent);
  for (bool first = true; !line.empty() || lines.empty(); first = false) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (!first && out.size() + 1 + word.size() > room) {
      lines.push_back(std::move(out));
      out = std::string(indent + 2, ' ') + std::string(word);
    } else {
      out += (first ? "" : " ") + std::string(word);
    }
    if (line.empty()) break;
  }
  lines.push_back(std::move(out));
  return lines;
}

int terminal_height(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : kUsualHeight;
}

}  // namespace qtrain
