#include "report/start_phases.h"

#include <fmt/format.h>

#include <utility>

#include "core/formats/json.h"

namespace qtrain {
namespace {

constexpr double kMinShown = 0.05;  // seconds

}  // namespace

void StartPhases::end() {
  if (!std::exchange(runs_, false)) return;
  phases_.back().seconds = part_.lap();
  log_.end_live();
  if (log_.has_events())
    log_.event("phase", dump_json({{"name", phases_.back().name}, {"seconds", phases_.back().seconds}}));
}

void StartPhases::begin(std::string name) {
  end();
  part_ = {};
  phases_.push_back({std::move(name)});
  runs_ = true;
  log_.live({.unit = phases_.back().name, .counted = false});
}

void StartPhases::finish() {
  if (std::exchange(finished_, true)) return;
  end();
  std::string text;
  for (const Phase& phase : phases_)
    if (phase.seconds >= kMinShown)
      text += fmt::format("{}{} {:.1f} s", text.empty() ? ": " : ", ", phase.name, phase.seconds);
  log_.info("started in {:.1f} s{}", whole_.seconds(), text);
}

}  // namespace qtrain
