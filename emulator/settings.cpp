#include <charconv>
#include <cstdlib>

#include "emulator/device.h"

namespace qtrain::emulation {
namespace {

constexpr std::string_view kRemedy =
    "order=forward|reverse|random, streams=late|early|random, copies=late|early|random, seed=N, threads=N, "
    "memory=BYTES, capability=MAJOR*10+MINOR, devices=N, ptx=FOLDER, gemm=plain|library";

[[noreturn]] void refuse(std::string_view item) {
  fail(ErrorKind::usage, {.cause = "cannot read '" + std::string(item) + "'",
                          .place = "QTRAIN_EMULATION",
                          .remedy = "a list of " + std::string(kRemedy)});
}

template <class Enum>
Enum choice(std::string_view item, std::string_view value, std::array<std::string_view, 3> names) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == value) return static_cast<Enum>(i);
  refuse(item);
}

template <class Number>
Number number(std::string_view item, std::string_view value) {
  Number n{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc{} || end != value.data() + value.size()) refuse(item);
  return n;
}

void apply(Settings& s, std::string_view item) {
  const std::size_t equals = item.find('=');
  if (equals == item.npos) refuse(item);
  const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
  if (key == "order")
    s.order = choice<Order>(item, value, {"forward", "reverse", "random"});
  else if (key == "streams")
    s.streams = choice<Timing>(item, value, {"late", "early", "random"});
  else if (key == "copies")
    s.copies = choice<Timing>(item, value, {"late", "early", "random"});
  else if (key == "seed")
    s.seed = number<std::uint64_t>(item, value);
  else if (key == "threads")
    s.host_threads = number<int>(item, value);
  else if (key == "memory")
    s.memory_bytes = number<std::size_t>(item, value);
  else if (key == "capability")
    s.capability = number<int>(item, value);
  else if (key == "devices")
    s.devices = number<int>(item, value);
  else if (key == "ptx")
    s.ptx = value;
  else if (key == "gemm" && (value == "plain" || (QTRAIN_HAS_BLASLT && value == "library")))
    s.gemm_library = value == "library";
  else
    refuse(item);
}

}  // namespace

std::size_t Settings::shared_bytes() const {
  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
  constexpr std::size_t kKib = 1024;
  switch (capability) {
    case 75: return 64 * kKib;
    case 80:
    case 87: return 163 * kKib;
    case 86:
    case 89:
    case 120: return 99 * kKib;
    default: return 227 * kKib;
  }
}

Settings parse_settings(std::string_view text) {
  Settings s;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    apply(s, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return s;
}

Settings& settings() {
  static Settings s = [] {
    const char* text = std::getenv("QTRAIN_EMULATION");
    return parse_settings(text ? text : "");
  }();
  return s;
}

}  // namespace qtrain::emulation
