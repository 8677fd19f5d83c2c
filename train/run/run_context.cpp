#include "train/run/run_context.h"

#include "config/remarks.h"

namespace qtrain {

void InertKeys::add(const std::string& key, const std::string& reason) {
  if (!config_.given(key)) return;
  keys_[key] = no_effect_entry(config_, key, reason);
  log_.info("{}", no_effect_note(config_, key, reason));
}

}  // namespace qtrain
