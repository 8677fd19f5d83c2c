#include "model/stage.h"

#include <algorithm>

namespace qtrain {

RecomputePlan plan_recompute(std::span<const Stage> stages, SlotSet drop, const BlockWeights& weights) {
  constexpr SlotSet input{Slot::x};
  SlotSet needed, written = input;
  for (const Stage& stage : stages) {
    check((written & stage.writes).empty(), "a slot has two writers");
    check((stage.reads - written).empty(), "a stage reads a slot that nobody wrote");
    written = written | stage.writes;
    needed = needed | stage.adjoint_reads;
    if (stage.trains(weights)) needed = needed | stage.weight_reads;
  }
  RecomputePlan plan;
  SlotSet missing = (needed & drop) - input;
  for (int i = static_cast<int>(stages.size()) - 1; i >= 0; --i) {
    const Stage& stage = stages[static_cast<std::size_t>(i)];
    if ((stage.writes & missing).empty()) continue;
    plan.rerun.push_back(i);
    needed = needed | stage.reads;
    missing = missing | ((stage.reads & drop) - input);
  }
  std::reverse(plan.rerun.begin(), plan.rerun.end());
  plan.stash = (needed - drop) | input;
  return plan;
}

void run_forward(std::span<const Stage> stages, BlockRun& run) {
  for (const Stage& stage : stages) stage.forward(run);
}

void run_backward(std::span<const Stage> stages, const RecomputePlan& plan, BlockRun& run) {
  for (const int i : plan.rerun) stages[static_cast<std::size_t>(i)].forward(run);
  for (std::size_t i = stages.size(); i-- > 0;) stages[i].backward(run);
}

}  // namespace qtrain
