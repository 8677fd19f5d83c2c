#include "train/run/run_context.h"

#include "config/remarks.h"
#include "core/os/stop.h"

namespace qtrain {

void IgnoredKeys::add(const std::string& key, const std::string& reason) {
  if (!config_.given(key)) return;
  const Remark remark = ignored_key(config_, key, reason);
  keys_[key] = entry_of(remark);
  log_.info("{}", line_of(remark));
}

bool RunContext::stop_requested() const {
  return any_rank(ctx, ranks, qtrain::stop_requested());
}

bool RunContext::finish_unless_stopped() const {
  const bool stopped = !qtrain::finish_unless_stopped();
  if (any_rank(ctx, ranks, stopped)) return false;
  set_late_stop_answer("The last step is done, saving the model. Press Ctrl-C again to quit now without saving.");
  return true;
}

}  // namespace qtrain
