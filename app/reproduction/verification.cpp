#include "app/reproduction/verification.h"

#include <algorithm>

#include "app/reproduction/redone_steps.h"
#include "app/reproduction/sealed_run.h"
#include "core/plural.h"

namespace qtrain {
namespace {

void check_inputs(const RecordedRun& run, Verification& v) {
  const auto changed = changed_files(run);
  for (const auto& [name, why] : changed) v.add(name, why);
  if (changed.empty()) v.add(counted(std::ssize(run.files), "file") + " of model and tokenizer");
}

}  // namespace

bool Verification::holds() const {
  return std::ranges::all_of(findings, [](const Finding& f) { return f.problem.empty(); });
}

Verification verify_run(const RecordedRun& run, const VerificationOptions& options) {
  Verification v;
  const std::vector<SealedState> states = sealed_states(run, v);
  check_inputs(run, v);
  check_agreement(run, states, v);
  // If the inputs have changed, repeated steps would differ for a reason that is already known.
  if (v.holds()) redo_some(run, stretches_between(states), options, v);
  return v;
}

}  // namespace qtrain
