#pragma once
#include <cstdint>
#include <string_view>

#include "core/device.h"
#include "data/token_rows.h"

/// The numbers that `qtrain init` chooses, each from a few facts.
namespace qtrain::init {

enum class Method : std::uint8_t { lora, qlora, full, pretrain };
std::string_view preset_of(Method method);

/// Rows to hold out for evaluation, for `eval_split`: a tenth, at most 200; none of fewer than 20.
std::int64_t held_out_rows(std::int64_t rows);

/// The longest row to train on: enough for nearly all rows and 98 % of their tokens, unless a few rows are much longer
/// than the others; at most `limit`. A multiple of 64 if that allows it.
std::int64_t row_length(const DatasetStatistics& rows, std::int64_t limit);
/// Rows longer than that, as a fraction.
double truncated_share(const DatasetStatistics& rows, std::int64_t length);

/// The length of packed rows: the largest power of two from 64 up to `limit` that makes at least 64 rows of all tokens.
std::int64_t packed_length(double tokens, std::int64_t limit);

/// Passes over the rows: the fewer rows, the more.
std::int64_t epochs_over(std::int64_t rows);
/// Rows per update, a power of two up to 64, with which these passes have about 300 updates or more.
std::int64_t rows_per_update(std::int64_t rows, std::int64_t epochs);
/// Updates of these passes.
std::int64_t updates_of(std::int64_t rows, std::int64_t epochs, std::int64_t per_update);

struct RateFor {
  Method method;
  std::int64_t hidden_size = 0;
  bool random_init = false;
};
/// The peak learning rate for a model of this width, rounded to one digit.
double learning_rate(const RateFor& model);

/// The rows of a micro-batch that keep a device busy: a power of two up to `per_update`.
std::int64_t busy_micro_batch(std::int64_t per_update, double mean_length, DeviceKind device);

/// Updates between two lines of the log: about 30 lines, at least one every ten updates.
std::int64_t log_interval(std::int64_t updates);

}  // namespace qtrain::init
