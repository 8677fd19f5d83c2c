#pragma once
#include <cstddef>
#include <deque>
#include <string>

namespace qtrain::monitor {

/// Draws the values of the last minutes as a row of bars, one per time interval, the newest last. Intervals begin at
/// multiples of their length, so that a finished bar does not change.
class History {
 public:
  static constexpr double kSeconds = 300;  ///< older values are dropped

  /// Adds a value. Times must not decrease.
  void add(double seconds, double value);

  struct Look {
    double now = 0, interval = 1;  ///< seconds: time of the newest sample, and between samples
    int bars = 0;                  ///< columns
    double full = 0;               ///< value of a full bar; 0 for the largest value
    bool unicode = false;          ///< draw bars with block characters instead of ASCII
  };
  /// The row of `bars` columns. An interval without a value repeats the bar before; there are blanks before the first
  /// one.
  std::string drawn(const Look& look) const;

  /// Seconds per bar: the interval times a power of two, so that all samples since the start, or kSeconds, fit.
  static double bar_seconds(const Look& look);

 private:
  struct Value {
    double seconds, value;
  };
  std::deque<Value> values_;
};

}  // namespace qtrain::monitor
