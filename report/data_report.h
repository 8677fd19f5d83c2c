#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/formats/json.h"
#include "data/dataset.h"

namespace qtrain {

/// What there is to know about prepared rows before they are trained on. Lengths are those of source rows in tokens,
/// before truncation.
struct DataReport {
  struct Bar {
    std::int64_t from = 0, to = 0;  ///< lengths in [from, to)
    std::int64_t rows = 0;
  };

  std::int64_t count = 0, min = 0, p50 = 0, p95 = 0, p99 = 0, max = 0;
  double mean = 0;
  std::vector<Bar> histogram;
  std::int64_t recommended_max_length = 0;  ///< p99.5 rounded up to a multiple of 64
  double padding_waste = 0;  ///< share of padding, if the micro-batches of an epoch were padded to their longest rows
  std::optional<double> packing_density;  ///< tokens per place in the rows, when packing
  DatasetStatistics statistics;

  Json json() const;
  /// Lines for people.
  std::vector<std::string> lines() const;
};
/// The max_length that nearly no row exceeds: p99.5 rounded up to a multiple of 64.
std::int64_t enough_length(const DatasetStatistics& rows);
DataReport report_on(const Dataset& rows, const Config& config, Split split);

/// One line of `preprocess --dump`: {"input_ids": [...], "labels": [...], "position_ids": [...]}.
std::string dump_line(const Dataset& rows, std::int64_t row);

}  // namespace qtrain
