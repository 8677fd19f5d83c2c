#pragma once
#include <cstddef>

namespace qtrain {

/// What a rendering may still use. Every operation whose cost grows with its operands pays here, so that a hostile
/// template ends with an error. Errors: ErrorKind::input.
class PyWork {
 public:
  void step(std::size_t count = 1);
  /// Bytes of a string or list that are about to be made.
  void make(std::size_t size);
  /// Bytes that are about to be looked at: compared, searched, counted. They cost a fraction of what making them does.
  void read(std::size_t size);
  /// An error if a text of so many bytes is too large; costs nothing.
  static void require_fits(std::size_t size);

  /// One level of nesting, for as long as it lives.
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
  std::size_t steps_ = 0, made_ = 0;
  int depth_ = 0;
};

}  // namespace qtrain
