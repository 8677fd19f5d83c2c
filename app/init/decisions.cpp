#include "app/init/decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "report/data_report.h"

namespace qtrain::init {
namespace {

constexpr std::int64_t kMultiple = 64;

std::int64_t power_of_two_up_to(double n) {
  return n < 1 ? 1 : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n)));
}

/// Tokens that rows lose to a maximum length, as a fraction.
double lost_share(const DatasetStatistics& rows, std::int64_t length) {
  double lost = 0, all = 0;
  for (const std::int32_t n : rows.lengths) {
    lost += static_cast<double>(std::max<std::int64_t>(n - length, 0));
    all += static_cast<double>(n);
  }
  return all > 0 ? lost / all : 0;
}

/// The nearest number with one digit, so that files show 0.0009 and not 0.0009000000000000001.
double to_one_digit(double x) {
  return std::strtod(fmt::format("{:.0e}", x).c_str(), nullptr);
}

}  // namespace

std::string_view preset_of(Method method) {
  constexpr std::array<std::string_view, 4> kNames{"lora", "qlora", "full", "pretrain"};
  return kNames[static_cast<std::size_t>(method)];
}

std::int64_t held_out_rows(std::int64_t rows) {
  return rows < 20 ? 0 : std::clamp<std::int64_t>(rows / 10, 2, 200);
}

// Beyond twice the length of 99 % of the rows, `qtrain validate` warns of a max_length for a few outliers.
std::int64_t row_length(const DatasetStatistics& rows, std::int64_t limit) {
  constexpr double kLittle = 0.02;
  std::int64_t length = enough_length(rows);
  const std::int64_t most = std::max(length, 2 * rows.percentile(0.99));
  while (lost_share(rows, length) > kLittle && length + kMultiple <= most) length += kMultiple;
  return std::min(length, limit);
}

double truncated_share(const DatasetStatistics& rows, std::int64_t length) {
  if (rows.lengths.empty()) return 0;
  const auto longer = std::ranges::count_if(rows.lengths, [&](std::int32_t n) { return n > length; });
  return static_cast<double>(longer) / static_cast<double>(rows.lengths.size());
}

std::int64_t packed_length(double tokens, std::int64_t limit) {
  constexpr double kRows = 64;
  return std::min(limit, std::max(kMultiple, power_of_two_up_to(std::min(tokens / kRows, static_cast<double>(limit)))));
}

std::int64_t epochs_over(std::int64_t rows) {
  if (rows >= 20'000) return 1;
  if (rows >= 2'000) return 2;
  if (rows >= 200) return 3;
  return rows >= 50 ? 5 : 10;
}

std::int64_t rows_per_update(std::int64_t rows, std::int64_t epochs) {
  constexpr std::int64_t kUpdates = 300, kMost = 64;
  return std::min(kMost, power_of_two_up_to(static_cast<double>(rows * epochs) / kUpdates));
}

std::int64_t updates_of(std::int64_t rows, std::int64_t epochs, std::int64_t per_update) {
  return epochs * ((rows + per_update - 1) / per_update);
}

// For Llama models the best rate falls with the width as hidden_size^-0.78, for Qwen models it hardly does (Thinking
// Machines, "LoRA Without Regret", 2025, and its Tinker cookbook, whose rates for Llama models are 1.4 times these).
// For a width of 4096 these are the rates of the presets lora, qlora and full; that of pretrain has no width to go by,
// and stands between those of wide and narrow models.
double learning_rate(const RateFor& model) {
  constexpr double kExponent = 0.78, kWidth = 4096, kMost = 10;  // of the rate at that width
  const bool adapter = model.method == Method::lora || model.method == Method::qlora;
  const double at_width = adapter ? 2e-4 : model.random_init ? 3e-4 : 2e-5;
  const double width = static_cast<double>(std::max<std::int64_t>(model.hidden_size, 1));
  return to_one_digit(at_width * std::min(kMost, std::pow(kWidth / width, kExponent)));
}

std::int64_t busy_micro_batch(std::int64_t per_update, double mean_length, DeviceKind device) {
  const double tokens = device == DeviceKind::cuda ? 16'384 : 1'024;
  return std::min(per_update, power_of_two_up_to(tokens / std::max(mean_length, 1.0)));
}

std::int64_t log_interval(std::int64_t updates) {
  return std::clamp<std::int64_t>(updates / 30, 1, 10);
}

}  // namespace qtrain::init
