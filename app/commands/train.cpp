#include "train/train.h"
#include "app/commands/commands.h"
#include "config/check.h"
#include "config/remarks.h"
#include "train/plan/compute.h"

namespace qtrain {

int run_train(const Arguments& args) {
  ResolvedConfig config = load_config(args.operand(0), args.overrides());
  remark_on_device(config);
  tell_remarks(config, args.log());
  require_supported(config);
  args.log().show_progress(!config.value.training.disable_tqdm);
  const std::string resume = args.text("resume").value_or(config.value.training.resume_from_checkpoint);
  const TrainingResult result = train(config, resume, args.log());
  args.give({.text = result.summary, .json = result.json});
  return result.exit_code;
}

}  // namespace qtrain
