#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "monitor/history.h"

namespace qtrain::monitor {

enum class Unit : std::uint8_t {
  percent,
  cores,
  bytes,
  bytes_per_second,
  celsius,
  watts,
  megahertz,
  number,
  per_second
};

/// A sampled quantity: its key in JSON documents and its label in tables.
struct Quantity {
  std::string_view key, label;
  Unit unit;
};
std::span<const Quantity> host_quantities();
std::span<const Quantity> gpu_quantities();
std::span<const Quantity> run_quantities();

/// Values by key; the keys are string literals. A value that could not be measured is missing.
using Values = std::map<std::string_view, double>;
std::optional<double> find(const Values& values, std::string_view key);
void put(Values& values, std::string_view key, std::optional<double> value);

/// "97 %", "66.3 GiB", "12.3 MB/s": at most 10 columns.
std::string in_unit(double value, Unit unit);

/// Running statistics of one quantity, sampled at increasing times.
class Statistics {
 public:
  void add(double seconds, double value);
  std::int64_t count() const { return count_; }
  double last() const { return last_; }
  double first() const { return first_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  double least() const { return least_; }
  double most() const { return most_; }
  /// Slope per second of the least-squares line through the values; 0 for fewer than three values.
  double slope() const;
  const History& history() const { return history_; }

 private:
  std::int64_t count_ = 0;
  double first_ = 0, last_ = 0, sum_ = 0, least_ = 0, most_ = 0;
  double origin_ = 0, times_ = 0, squares_ = 0,
         products_ = 0;  // sums of t, t^2 and t x, with t relative to the first time
  History history_;
};
using Series = std::map<std::string_view, Statistics>;
const Statistics* find(const Series& series, std::string_view key);
void add(Series& series, double seconds, const Values& values);

}  // namespace qtrain::monitor
