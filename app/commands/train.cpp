#include "app/commands/commands.h"
#include "config/remarks.h"
#include "train/plan/compute.h"
#include "train/trainer.h"

namespace qtrain {

int run_train(const Arguments& args) {
  ResolvedConfig config = load_config(args.operand(0), args.overrides());
  remark_on_device(config);
  tell_remarks(config, args.log());
  require_supported(config);
  args.log().show_progress(!config.value.training.disable_tqdm);
  Trainer trainer(config, args.text("resume").value_or(config.value.training.resume_from_checkpoint), args.log());
  const int code = trainer.run();
  args.give({.text = trainer.summary(), .json = trainer.results()});
  return code;
}

}  // namespace qtrain
