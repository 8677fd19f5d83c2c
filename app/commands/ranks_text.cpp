#include "app/commands/ranks_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "app/commands/ranged_text.h"
#include "core/plural.h"
#include "core/progress.h"

namespace qtrain {
namespace {

constexpr double kGiga = 1e9, kBits = 8;

/// Three significant digits with a suitable unit: "1.25 s", "34.5 ms"; "20:34" for minutes.
std::string seconds_text(double seconds) {
  constexpr double kThousand = 1e3, kRounded = 0.9995;  // fraction of a unit that rounds up to the next unit
  if (seconds < kRounded) return fmt::format("{:.3g} ms", seconds * kThousand);
  return seconds < kRounded * kThousand ? fmt::format("{:.3g} s", seconds) : format_duration(seconds);
}

double waiting_share(const SimulatedStep& step) {
  return step.seconds > 0 ? step.waiting() / step.seconds : 0;
}

std::string layout_text(const RankLayout& layout) {
  return fmt::format("{} ({} of {})", counted(layout.ranks(), "rank"), counted(layout.nodes, "node"),
                     layout.ranks_per_node);
}

std::string stage_line(const RanksEstimate& e, const StageEstimate& s) {
  std::string line =
      fmt::format("  {:<8} {:>12.2f} MiB", static_cast<int>(s.stage), static_cast<double>(s.memory.total()) / kMib);
  if (s.step)
    line += fmt::format(" {:>12} {:>11} {:>6.0f} %", duration_range_text(s.seconds, "-"),
                        amount_range_text(e.tokens_per_second(s)), waiting_share(*s.step) * 100);
  return line + (!s.refused.empty() ? "  refused\n" : s.fits ? "\n" : "  does not fit\n");
}

/// The reasons why stages are refused, one per line.
std::string refused_text(const RanksEstimate& e) {
  std::set<std::string> causes;
  for (const StageEstimate& s : e.stages)
    if (!s.refused.empty()) causes.insert(s.refused);
  std::string text;
  for (const std::string& cause : causes) text += fmt::format("  refused: {}\n", cause);
  return text;
}

std::string verdict_text(const RanksEstimate& e) {
  if (!e.net)
    return "time per step         unknown: name a GPU (--gpu), or give the timeline of a\n"
           "                      run (--trace)\n";
  const StageEstimate* best = e.fastest();
  if (!best) return "fastest that fits     none: no zero_stage fits\n";
  return fmt::format(
      "fastest that fits     zero_stage={}: {} tokens/s,\n"
      "                      {} per step, of which about {:.0f} % is spent\n"
      "                      waiting for other ranks\n"
      "                      (memory does not include the buffers of NCCL)\n",
      static_cast<int>(best->stage), amount_range_text(e.tokens_per_second(*best)),
      duration_range_text(best->seconds, "-"), waiting_share(*best->step) * 100);
}

Json link_json(const Link& link) {
  return {{"latency", link.latency}, {"bytes_per_second", link.bandwidth}};
}

Json step_json(const StageEstimate& s) {
  const SimulatedStep& step = *s.step;
  return {{"seconds", step.seconds},
          {"seconds_range", range_json(s.seconds)},
          {"computing", step.total(Lane::computing)},
          {"exchanging", step.total(Lane::exchanging)},
          {"waiting", step.waiting()}};
}

}  // namespace

std::string ranks_text(const RanksEstimate& e) {
  std::string text = fmt::format("memory per rank and stage: {}\n", layout_text(e.layout));
  if (e.net) {
    text += fmt::format("  links of a rank: {:.0f} GB/s within its node", e.net->inside.bandwidth / kGiga);
    text += e.layout.nodes > 1 ? fmt::format(", {:.3g} Gb/s to other nodes\n", e.net->between.bandwidth * kBits / kGiga)
                               : "\n";
    if (e.lane == ExchangeLane::computing) text += "  communication does not overlap computation\n";
    text += "  zero_stage        memory     per step  tokens / s    waits\n";
  }
  for (const StageEstimate& s : e.stages) text += stage_line(e, s);
  return text + refused_text(e) + verdict_text(e);
}

Json ranks_json(const RanksEstimate& e) {
  Json json{{"nodes", e.layout.nodes}, {"ranks_per_node", e.layout.ranks_per_node}, {"stages", Json::array()}};
  json["links"] = e.net ? Json{{"inside", link_json(e.net->inside)}, {"between", link_json(e.net->between)}} : Json();
  json["overlap"] = e.lane == ExchangeLane::own;
  for (const StageEstimate& s : e.stages) {
    Json stage{{"zero_stage", static_cast<int>(s.stage)},
               {"gradient_checkpointing", s.recompute.name()},
               {"memory", s.memory.json()},
               {"fits", s.fits},
               {"refused", s.refused.empty() ? Json() : Json(s.refused)},
               {"update", s.step ? step_json(s) : Json()}};
    const auto speed = s.step ? std::optional(e.tokens_per_second(s)) : std::nullopt;
    stage["tokens_per_second"] = usual_json(speed);
    stage["tokens_per_second_range"] = range_json(speed);
    json["stages"].push_back(std::move(stage));
  }
  const StageEstimate* best = e.fastest();
  json["tokens_per_update"] = e.tokens;
  json["fastest"] = best ? Json(static_cast<int>(best->stage)) : Json();
  return json;
}

std::string trace_text(const TracedRun& run) {
  return fmt::format(
      "timeline              {} of {}, median\n"
      "  measured            {} per step\n"
      "  predicted           {}: {} computing, {} waiting\n"
      "  difference          {:+.1f} %\n",
      counted(run.updates, "update"), counted(run.ranks, "rank"), seconds_text(run.measured),
      seconds_text(run.predicted), seconds_text(run.computing), seconds_text(run.waiting),
      (run.predicted / run.measured - 1) * 100);
}

Json trace_json(const TracedRun& run) {
  return {{"ranks", run.ranks}, {"updates", run.updates},     {"measured", run.measured}, {"predicted", run.predicted},
          {"norm", run.norm},   {"computing", run.computing}, {"waiting", run.waiting}};
}

}  // namespace qtrain
