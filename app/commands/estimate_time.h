#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/estimate.h"

namespace qtrain {

/// What the figures of time and cost are made of.
struct Price {
  std::optional<double> per_hour;

  std::optional<Ranged<double>> of(const Estimate& e) const;
};

std::vector<std::string> words_of(const std::string& text);
/// Words behind a label, on lines of a terminal.
std::string words_text(std::string_view label, const std::vector<std::string>& words);

/// Speed, steps, time and cost of a run.
std::string time_text(const Estimate& e, const Config& config, const Price& price);
/// The run on every card.
std::string cards_text(const Estimate& e);

/// Seconds of an update of one rank.
Json step_json(const Ranged<StepTime>& t);
Json card_json(const GpuVerdict& card);

}  // namespace qtrain
