#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/formats/json.h"
#include "data/dataset.h"

namespace qtrain {

/// Statistics of prepared rows. Lengths are in tokens, of source rows before truncation.
struct DataReport {
  struct Bar {
    std::int64_t from = 0, to = 0;  ///< lengths in [from, to)
    std::int64_t rows = 0;
  };

  std::int64_t count = 0, min = 0, p50 = 0, p95 = 0, p99 = 0, max = 0;
  double mean = 0;
  std::vector<Bar> histogram;
  std::int64_t recommended_max_length = 0;  ///< p99.5 rounded up to a multiple of 64
  double padding_waste = 0;  ///< share of padding if the micro-batches of an epoch are padded to their longest rows
  std::optional<double> packing_density;  ///< tokens divided by rows * max_length; only with packing
  DatasetStatistics statistics;

  Json json() const;
  /// The report as lines of text.
  std::vector<std::string> lines() const;
};
/// A max_length that is enough for nearly all rows: p99.5 rounded up to a multiple of 64.
std::int64_t enough_length(const DatasetStatistics& rows);
DataReport report_on(const Dataset& rows, const Config& config, Split split);

/// One line of `preprocess --dump`: {"input_ids": [...], "labels": [...], "position_ids": [...]}.
std::string dump_line(const Dataset& rows, std::int64_t row);

}  // namespace qtrain
