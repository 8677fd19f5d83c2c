#include "core/os/shrunk_file.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/formats/json.h"
#include "core/os/stop.h"
#include "core/utf8.h"

namespace qtrain {
namespace {

constexpr std::size_t kMappings = 1024, kMaxName = 1024;
constexpr std::string_view kShrunkCause =
                               "cannot be read any more: it became shorter while it was read, or its disk failed",
                           kShrunkRemedy = "run the same command again, and leave the file as it is meanwhile";

/// A text that a signal handler can read; empty if it would be too long.
struct StaticText {
  std::array<char, kMaxName> bytes;
  std::size_t size = 0;

  void set(std::string_view text) {
    size = text.size() <= bytes.size() ? text.size() : 0;
    std::copy_n(text.begin(), size, bytes.begin());
  }
  std::string_view text() const { return {bytes.data(), size}; }
};

/// A mapping in use. The begin is written last, and removed first.
struct Mapping {
  std::atomic<std::uintptr_t> begin = 0;
  std::atomic<bool> taken = false;
  std::size_t size = 0;
  StaticText file, json;  ///< the name on one line, and as a JSON string
};

// A signal handler can only reach static storage.
std::array<Mapping, kMappings> mappings;
std::atomic<std::size_t> unnamed = 0;  // mappings without a place in the table
std::atomic<bool> gives_document = false;

void say(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

[[noreturn]] void leave_for(const Mapping* mapping) {
  leave_terminal();
  const std::string_view file = mapping != nullptr ? mapping->file.text() : std::string_view();
  for (const std::string_view part :
       {std::string_view("error: "), file.empty() ? std::string_view("a file") : file, std::string_view(": "),
        kShrunkCause, std::string_view("\n  "), kShrunkRemedy, std::string_view("\n")})
    say(STDERR_FILENO, part);
  if (gives_document) {
    const std::string_view json = mapping != nullptr ? mapping->json.text() : std::string_view();
    for (const std::string_view part :
         {std::string_view(R"({"error": {"kind": "input", "exit_code": 3, "cause": ")"), kShrunkCause,
          std::string_view(R"(", "place": )"), json.empty() ? std::string_view("\"\"") : json,
          std::string_view(R"(, "remedy": ")"), kShrunkRemedy, std::string_view("\"}}\n")})
      say(STDOUT_FILENO, part);
  }
  ::_exit(static_cast<int>(ErrorKind::input));
}

extern "C" void on_bus_error(int signal, siginfo_t* about, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(about->si_addr);
  if (about->si_code == BUS_ADRERR) {
    for (const Mapping& m : mappings)
      if (const std::uintptr_t begin = m.begin; begin != 0 && at >= begin && at - begin < m.size) leave_for(&m);
    if (unnamed > 0) leave_for(nullptr);
  }
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(signal, &usual, nullptr);  // the instruction is repeated, and ends the process
}

}  // namespace

void install_shrunk_file_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

void set_shrunk_file_document(bool is_wanted) {
  gives_document = is_wanted;
}

void name_mapping(std::span<const std::byte> bytes, const std::string& file) {
  for (Mapping& m : mappings) {
    if (m.taken.exchange(true)) continue;
    m.size = bytes.size();
    m.file.set(one_line(file));
    m.json.set(dump_json(valid_utf8(file)));
    m.begin = reinterpret_cast<std::uintptr_t>(bytes.data());
    return;
  }
  ++unnamed;
}

void forget_mapping(std::span<const std::byte> bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  for (Mapping& m : mappings) {
    if (m.begin != begin) continue;
    m.begin = 0;
    m.taken = false;
    return;
  }
  --unnamed;
}

}  // namespace qtrain
