#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include "core/error.h"

namespace qtrain {

struct PyLimits {
  std::size_t steps = 10'000'000;
  std::size_t made = std::size_t{1} << 29;  ///< total bytes created, most of them temporary
};

/// Resource limits of a rendering. Every operation whose cost grows with its operands is charged here, so that a
/// hostile template ends with an error. Throws ErrorKind::input.
class PyWork {
 public:
  explicit PyWork(PyLimits limits = {}) : limits_(limits) {}

  void step(std::size_t count = 1);
  /// Charges for bytes of a string or list about to be created.
  void make(std::size_t size);
  /// Charges for bytes about to be read (compared, searched, counted), at a fraction of the cost of creating them.
  void read(std::size_t size);
  /// Throws if a text of this size is too large; charges nothing.
  static void require_fits(std::size_t size);

  /// One level of nesting, for the object's lifetime.
  class Level {
   public:
    explicit Level(PyWork& work) : work_(work) { work_.enter(); }
    ~Level() { --work_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    PyWork& work_;
  };

 private:
  void enter();
  PyLimits limits_;
  std::size_t steps_ = 0, made_ = 0;
  int depth_ = 0;
};

/// Throws an error shown to the template's user; the interpreter adds name and line.
[[noreturn]] inline void py_fail(std::string cause) {
  fail(ErrorKind::input, {.cause = std::move(cause)});
}

}  // namespace qtrain
