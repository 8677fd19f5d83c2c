#pragma once
#include <cstddef>
#include <deque>
#include <string>

namespace qtrain::monitor {

/// The values of the last minutes as a row of bars, one for each of equal times, the newest last. Times begin at
/// multiples of their length, so that a bar stays as it is while later ones come.
class History {
 public:
  static constexpr double kSeconds = 300;  ///< what is older is forgotten

  /// Times do not decrease.
  void add(double seconds, double value);

  struct Look {
    double now = 0, interval = 1;  ///< seconds: of the newest sample, and from one to the next
    int bars = 0;                  ///< columns
    double full = 0;               ///< the value of the highest bar; 0: that of the largest value
    bool unicode = false;          ///< else bars are ASCII characters
  };
  /// `bars` columns. A time without a value has the bar of the one before, and blanks stand before the first value.
  std::string drawn(const Look& look) const;

  /// Seconds of a bar: the interval times a power of two, so that all samples since the start, or kSeconds, fit.
  static double bar_seconds(const Look& look);

 private:
  struct Value {
    double seconds, value;
  };
  std::deque<Value> values_;
};

}  // namespace qtrain::monitor
