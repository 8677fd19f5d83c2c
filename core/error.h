#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace qtrain {

/// Why a command failed or stopped; the value is the process exit code (docs/exit_codes.md).
enum class ErrorKind {
  internal = 1,    ///< a bug in qtrain
  usage = 2,       ///< command line or configuration
  input = 3,       ///< data or model files
  memory = 4,      ///< not enough memory
  non_finite = 5,  ///< NaN or Inf in loss or gradient
  disk = 6,        ///< a write failed
  peer = 7,        ///< a rank was lost
  stopped = 75,    ///< stopped by a signal; training has saved a checkpoint if it had completed a step
};

/// The message to the user: what happened, where (file, line, key), and what to do. `place` and `remedy` may be empty.
struct ErrorText {
  std::string cause;
  std::string place = {};
  std::string remedy = {};
};

/// The one exception type of the program. Only `main` catches it (and code that adds a place and rethrows).
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, ErrorText text) : std::runtime_error(render(text)), kind_(kind), text_(std::move(text)) {}

  ErrorKind kind() const { return kind_; }
  const ErrorText& text() const { return text_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  static std::string render(const ErrorText& t) {
    std::string s;
    for (const char c : t.place) c == '\n' ? void(s += "\\n") : s.push_back(c);  // keeps a file name on one line
    s += t.place.empty() ? t.cause : ": " + t.cause;
    if (!t.remedy.empty()) s += "\n  " + t.remedy;
    return s;
  }
  ErrorKind kind_;
  ErrorText text_;
};

[[noreturn]] inline void fail(ErrorKind kind, ErrorText text) {
  throw Error(kind, std::move(text));
}

/// A condition together with the call site, so that `check` needs no macro.
struct Claim {
  bool holds;
  const char* file;
  int line;
  Claim(bool condition, const char* f = __builtin_FILE(), int l = __builtin_LINE())  // NOLINT: implicit on purpose
      : holds(condition), file(f), line(l) {}
};

/// Throws an internal error naming the call site unless the claim holds: for conditions that only a bug can break.
inline void check(Claim claim, const char* why) {
  if (claim.holds) return;
  std::string place = claim.file;  // appended, because GCC 12 gives a false warning about concatenation here
  place.append(":").append(std::to_string(claim.line));
  fail(ErrorKind::internal, {.cause = why, .place = std::move(place)});
}

}  // namespace qtrain
