#include "config/dialects/axolotl.h"

#include <fmt/format.h>

#include <cmath>

#include "config/keys.h"

/// axolotl: keys that wait for others, and what its values come to together.
namespace qtrain {
namespace {

/// A number of events per epoch as a share of all updates, and the strategy to it.
void settle_events(Draft& draft, const std::string& event) {
  const std::string steps_key = event + "_steps";
  const Setting* per_epoch = draft.find("~" + event + "s_per_epoch");
  if (const auto n = draft.positive("~" + event + "s_per_epoch")) {
    const Setting* steps = draft.find(steps_key);
    if (steps && !steps->value.is_null() && steps->overrides() == per_epoch->overrides())
      draft.problem(*per_epoch, fmt::format(" and \"{}\" are both given", steps->written), "keep one of them");
    const double share = 1 / (*n * draft.positive("num_train_epochs").value_or(1));
    if (share < 1) draft.offer(steps_key, {per_epoch->written, per_epoch->place, share});
  }
  if (draft.positive(steps_key))
    draft.offer(event + "_strategy", {draft.find(steps_key)->written, draft.find(steps_key)->place, "steps"});
}

void settle_batch(Draft& draft) {
  const Setting* total = draft.find("~batch_size");
  if (!total || total->value.is_null()) return;
  const auto rows = draft.positive("~batch_size");
  const double micro = draft.positive("per_device_train_batch_size").value_or(1);
  if (draft.find("gradient_accumulation_steps"))
    return draft.problem(*total, " and \"gradient_accumulation_steps\" are both given", "keep one of them");
  const double windows = rows.value_or(0) / micro;
  if (windows < 1 || windows != std::floor(windows))
    return draft.problem(*total, fmt::format(" is {}: no multiple of micro_batch_size, {}", show(total->value), micro),
                         "give gradient_accumulation_steps");
  draft.offer("gradient_accumulation_steps", {total->written, total->place, static_cast<std::int64_t>(windows)});
}

/// All linear layers beside those that lora_target_modules names.
void settle_targets(Draft& draft) {
  const Setting* linear = draft.find("~lora_target_linear");
  if (!linear || linear->value != true) return;
  const Setting* named = draft.find("lora_target_modules");
  Json targets = named ? named->value : Json::array();
  if (targets.is_string()) targets = Json::array({targets});
  if (!targets.is_array()) return;  // an error of lora_target_modules
  targets.push_back("all-linear");
  const std::string written = named ? fmt::format("{} and {}", named->written, linear->written) : linear->written;
  draft.settings["lora_target_modules"] = {written, linear->place, std::move(targets)};
}

}  // namespace

void settle_axolotl(Draft& draft) {
  settle_events(draft, "eval");
  settle_events(draft, "save");
  settle_batch(draft);
  settle_targets(draft);
}

}  // namespace qtrain
