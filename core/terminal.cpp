#include "core/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

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

int terminal_width(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int columns = std::atoi(std::string(environment("COLUMNS")).c_str());
  return columns > 0 ? columns : kUsualWidth;
}

int terminal_height(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : kUsualHeight;
}

}  // namespace qtrain
