#include "report/data_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/plural.h"
#include "data/loader.h"

namespace qtrain {
namespace {

constexpr std::int64_t kBars = 16, kMultiple = 64;

/// Histogram of row lengths with bins of equal width.
std::vector<DataReport::Bar> histogram_of(const DatasetStatistics& s) {
  const std::int64_t width = std::max<std::int64_t>(1, (s.max() + kBars) / kBars);
  std::vector<DataReport::Bar> bars;
  for (std::int64_t from = 0; from <= s.max(); from += width) bars.push_back({.from = from, .to = from + width});
  for (const std::int32_t length : s.lengths) ++bars[static_cast<std::size_t>(length / width)].rows;
  return bars;
}

/// Share of padding in the first epoch, with the batches that the run would use.
double padding_of(const Dataset& rows, const Config& config, Split split) {
  const TrainingSection& t = config.training;
  const bool training = split == Split::train;
  const Loader loader(rows, {.batch_size = training ? t.per_device_train_batch_size : t.per_device_eval_batch_size,
                             .sampler = {.sampling = training ? t.train_sampling_strategy : Sampling::sequential,
                                         .seed = static_cast<std::uint64_t>(t.data_seed.value_or(t.seed)),
                                         .group = t.per_device_train_batch_size * t.gradient_accumulation_steps}});
  std::int64_t padded = 0;
  for (std::int64_t b = 0; b < loader.batches_per_epoch(); ++b) {
    const std::vector<std::int64_t> batch = loader.rows_of(0, b);
    std::int64_t longest = 0;
    for (const std::int64_t r : batch) longest = std::max(longest, rows.length(r));
    padded += longest * static_cast<std::int64_t>(batch.size());
  }
  return padded == 0 ? 0 : 1 - static_cast<double>(rows.statistics().tokens) / static_cast<double>(padded);
}

double share_of(std::int64_t part, std::int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

void append_numbers(std::string& line, std::span<const std::int32_t> numbers) {
  char digits[16];
  line += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) line += ", ";
    line.append(digits, std::to_chars(digits, digits + sizeof digits, numbers[i]).ptr);
  }
  line += ']';
}

}  // namespace

std::int64_t enough_length(const DatasetStatistics& s) {
  return (s.percentile(0.995) + kMultiple - 1) / kMultiple * kMultiple;
}

DataReport report_on(const Dataset& rows, const Config& config, Split split) {
  const DatasetStatistics& s = rows.statistics();
  const Packing packing = split == Split::train ? config.data.train_packing() : config.data.evaluation_packing();
  DataReport report{.count = s.source_rows,
                    .min = s.min(),
                    .p50 = s.percentile(0.5),
                    .p95 = s.percentile(0.95),
                    .p99 = s.percentile(0.99),
                    .max = s.max(),
                    .mean = s.mean(),
                    .histogram = histogram_of(s),
                    .recommended_max_length = enough_length(s),
                    .padding_waste = padding_of(rows, config, split),
                    .statistics = s};
  if (packing != Packing::none) report.packing_density = share_of(s.tokens, s.rows * *config.data.max_length);
  return report;
}

Json DataReport::json() const {
  const DatasetStatistics& s = statistics;
  Json bars = Json::array(), cut = Json::array();
  for (const Bar& bar : histogram) bars.push_back({{"from", bar.from}, {"to", bar.to}, {"rows", bar.rows}});
  for (const TruncatedRow& row : s.first_truncated) cut.push_back({{"place", row.place}, {"tokens", row.length}});
  return {{"count", count},
          {"min", min},
          {"mean", mean},
          {"p50", p50},
          {"p95", p95},
          {"p99", p99},
          {"max", max},
          {"histogram", bars},
          {"recommended_max_length", recommended_max_length},
          {"truncated_rows", s.truncated_rows},
          {"truncated_share", share_of(s.truncated_rows, count)},
          {"truncated_tokens", s.truncated_tokens},
          {"first_truncated", cut},
          {"rows", s.rows},
          {"tokens", s.tokens},
          {"target_tokens", s.target_tokens},
          {"documents", s.documents},
          {"dropped_rows", s.dropped_rows},
          {"unplaced_rows", s.unplaced.count},
          {"empty_answers", s.unanswered.count},
          {"broken_turns", s.broken.count},
          {"too_long_rows", s.too_long.count},
          {"untargeted_rows", s.untargeted_rows},
          {"prompt_mismatches", s.prompt_mismatches},
          {"padding_waste", padding_waste},
          {"packing_density", packing_density ? Json(*packing_density) : Json()}};
}

std::vector<std::string> DataReport::lines() const {
  const DatasetStatistics& s = statistics;
  std::vector<std::string> out{
      fmt::format("source rows           {}", count),
      fmt::format("tokens per row        min {}, mean {:.1f}, p50 {}, p95 {}, p99 {}, max {}", min, mean, p50, p95, p99,
                  max),
      fmt::format("recommended           max_length {} (p99.5 rounded up to {})", recommended_max_length, kMultiple)};
  std::int64_t most = 1;
  for (const Bar& bar : histogram) most = std::max(most, bar.rows);
  const auto first = std::find_if(histogram.begin(), histogram.end(), [](const Bar& bar) { return bar.rows > 0; });
  for (const Bar& bar : std::span(first, histogram.end()))
    out.push_back(fmt::format("  {:>7} to {:>7}  {:>9}  {}", bar.from, bar.to - 1, bar.rows,
                              std::string(static_cast<std::size_t>(bar.rows * 40 / most), '#')));
  out.push_back(fmt::format("truncated             {} ({:.2f} %), {} lost", counted(s.truncated_rows, "row"),
                            100 * share_of(s.truncated_rows, count), counted(s.truncated_tokens, "token")));
  for (const TruncatedRow& row : s.first_truncated)
    out.push_back(fmt::format("  {}: {}", row.place, counted(row.length, "token")));
  out.push_back(fmt::format("prepared rows         {}, {}, {} of them {}", s.rows, counted(s.tokens, "token"),
                            s.target_tokens, s.target_tokens == 1 ? "a target" : "targets"));
  if (s.dropped_rows > 0)
    out.push_back(fmt::format("dropped               {} without a target", counted(s.dropped_rows, "row")));
  if (s.unplaced.count > 0)
    out.push_back(fmt::format("left out              {} without a known answer, first {}: {}",
                              counted(s.unplaced.count, "row"), s.unplaced.place, s.unplaced.reason));
  if (s.broken.count > 0)
    out.push_back(fmt::format("skipped               {} with broken turns, first {}: {}",
                              counted(s.broken.count, "row"), s.broken.place, s.broken.reason));
  if (s.too_long.count > 0)
    out.push_back(fmt::format("skipped               {} longer than max_length, first {}: {}",
                              counted(s.too_long.count, "row"), s.too_long.place, s.too_long.reason));
  if (s.unanswered.count > 0)
    out.push_back(fmt::format("skipped               {} with an empty answer, first {}: {}",
                              counted(s.unanswered.count, "row"), s.unanswered.place, s.unanswered.reason));
  out.push_back(packing_density ? fmt::format("packing density       {:.2f} %", 100 * *packing_density)
                                : fmt::format("padding               {:.2f} % of the tokens in padded micro-batches",
                                              100 * padding_waste));
  return out;
}

std::string dump_line(const Dataset& rows, std::int64_t row) {
  const RowView view = rows.row(row);
  std::string line = "{\"input_ids\": ";
  append_numbers(line, view.input_ids);
  line += ", \"labels\": ";
  append_numbers(line, view.labels);
  line += ", \"position_ids\": ";
  append_numbers(line, rows.position_ids(row));
  return line + "}\n";
}

}  // namespace qtrain
