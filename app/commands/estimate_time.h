#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/estimate.h"

namespace qtrain {

/// Price of the device, from --price_per_hour; gives the cost of a run.
struct Price {
  std::optional<double> per_hour;

  std::optional<Ranged<double>> of(const Estimate& e) const;
};

std::vector<std::string> words_of(const std::string& text);
/// Words after a label, wrapped to the lines of a terminal.
std::string words_text(std::string_view label, const std::vector<std::string>& words);

/// Lines on speed, steps, time and cost of a run.
std::string time_text(const Estimate& e, const Config& config, const Price& price);
/// Table of the run on every known GPU.
std::string cards_text(const Estimate& e);

/// Seconds of one optimizer step on one rank, by part.
Json step_json(const Ranged<StepTime>& t);
Json card_json(const GpuVerdict& card);

}  // namespace qtrain
