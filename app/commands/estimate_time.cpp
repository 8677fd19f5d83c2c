#include "app/commands/estimate_time.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <sstream>

#include "app/commands/ranged_text.h"

namespace qtrain {
namespace {

/// Time of an optimizer step by part, and the part that limits it.
std::string speed_text(const Estimate& e) {
  if (!e.step_time) return "";
  std::vector<std::string> parts;
  for (const auto& [name, part] :
       {std::pair("compute", &StepTime::computing), std::pair("attention", &StepTime::attention),
        std::pair("memory traffic", &StepTime::memory), std::pair("adapters", &StepTime::adapters),
        std::pair("launches", &StepTime::gaps), std::pair("host link", &StepTime::host),
        std::pair("data loading", &StepTime::loading), std::pair("update of the weights", &StepTime::update)}) {
    const auto seconds = e.step_time->map([&part = part](const StepTime& t) { return t.*part; });
    if (seconds.usual > 0) parts.push_back(fmt::format("{} {}", name, duration_range_text(seconds, "-")));
  }
  return words_text("limited by", words_of(fmt::format("{}; each step spends: {}", e.limit(), fmt::join(parts, ", "))));
}

/// What turning off accumulation would mean: users expect fewer steps, which is wrong.
std::string accumulation_text(const Config& config) {
  const TrainingSection& t = config.training;
  if (t.gradient_accumulation_steps == 1) return "";
  const std::string what =
      t.max_steps > 0
          ? fmt::format("would be the same steps over 1/{} of the tokens", t.gradient_accumulation_steps)
          : fmt::format("would be {} times as many steps over the same tokens", t.gradient_accumulation_steps);
  return words_text("", words_of("gradient_accumulation_steps=1 " + what));
}

}  // namespace

std::optional<Ranged<double>> Price::of(const Estimate& e) const {
  const auto seconds = e.seconds();
  if (!per_hour || !seconds) return {};
  return seconds->map([this](double s) { return s / 3600 * *per_hour; });
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string words_text(std::string_view label, const std::vector<std::string>& words) {
  constexpr std::size_t kWidth = 79;
  std::string text, line = fmt::format("{:<21}", label);
  for (const std::string& word : words) {
    if (line.size() + 1 + word.size() > kWidth) {
      text += line + "\n";
      line = std::string(21, ' ');
    }
    line += " " + word;
  }
  return text + line + "\n";
}

std::string time_text(const Estimate& e, const Config& config, const Price& price) {
  std::string text;
  if (const auto speed = e.tokens_per_second())
    text += fmt::format("speed                 about {} tokens/s (predicted)\n", range_text(*speed)) + speed_text(e);
  if (!e.steps) return text + "steps and time        unknown without data and max_steps\n";
  text +=
      fmt::format("steps                 {}, {:.0f} {}\n", *e.steps, *e.tokens, *e.tokens == 1 ? "token" : "tokens");
  text += accumulation_text(config);
  if (!e.seconds()) return text + "time                  unknown for this device\n";
  constexpr double kGiga = 1e9, kTera = 1e12;
  const auto teraflops = e.speed->map([](const DeviceSpeed& s) { return s.flops / kTera; });
  text += words_text(
      "time", words_of(fmt::format("about {} ({:.2g} GFLOP a token at {} TFLOP/s)", duration_range_text(*e.seconds()),
                                   e.flops_per_token / kGiga, range_text(teraflops))));
  if (const auto cost = price.of(e)) text += fmt::format("cost                  about {}\n", cost_range_text(*cost));
  return text;
}

std::string cards_text(const Estimate& e) {
  std::string text = fmt::format("{:<22} {:>7} {:>7} {:<4} {:>11} {:>14} {}\n", "GPU", "needs", "has", "fits",
                                 "tokens/s", "time", "with");
  for (const GpuVerdict& c : e.gpus) {
    const bool can = c.fits && (c.has_types || c.needs_fp16);
    text += fmt::format("{:<22} {:>7.0f} {:>7.0f} {:<4} {:>11} {:>14}{}\n", c.gpu->name,
                        static_cast<double>(c.bytes) / kMib, static_cast<double>(c.memory) / kMib,
                        !c.gpu->has_kernels() ? "old"
                        : c.fits              ? "yes"
                                              : "no",
                        can ? amount_range_text(c.tokens_per_second) : "-",
                        can && c.seconds ? duration_range_text(*c.seconds, "-") : "-", c.needs_fp16 ? " fp16" : "");
  }
  return text + "predicted, not measured: memory in MiB as planned, time from data sheets\n" +
         words_text("fp16:", words_of("use fp16=true instead of bf16=true, because the GPU has no bfloat16")) +
         words_text("old:", words_of("the kernels need compute capability 7.5 (Turing) or newer"));
}

Json step_json(const Ranged<StepTime>& range) {
  const StepTime& t = range.usual;
  const auto seconds = range.map([](const StepTime& s) { return s.seconds(); });
  return {{"seconds", t.seconds()},        {"seconds_range", range_json(seconds)},
          {"computing", t.computing},      {"memory_traffic", t.memory},
          {"host_traffic", t.host},        {"loading", t.loading},
          {"adapter_traffic", t.adapters}, {"update_of_weights", t.update},
          {"attention", t.attention},      {"launches", t.gaps}};
}

Json card_json(const GpuVerdict& card) {
  return {{"name", card.gpu->name},
          {"runs", card.has_types},
          {"changes", card.needs_fp16 ? Json{{"bf16", false}, {"fp16", true}} : Json::object()},
          {"lacks", card.gpu->lacks()},
          {"source", card.gpu->source},
          {"fits", card.fits},
          {"total", card.bytes},
          {"memory", card.memory},
          {"gradient_checkpointing", card.recompute.name()},
          {"tokens_per_second", card.tokens_per_second.usual},
          {"tokens_per_second_range", range_json(card.tokens_per_second)},
          {"seconds", usual_json(card.seconds)},
          {"seconds_range", range_json(card.seconds)},
          {"limit", card.fits ? card.limit : "memory size"}};
}

}  // namespace qtrain
