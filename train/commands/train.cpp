#include "train/cli/arguments.h"
#include "train/trainer.h"

namespace qtrain {

int run_train(const Arguments& args) {
  const ResolvedConfig config = load_config(args.operand(0), args.overrides());
  for (const std::string& note : config.notes) args.log().info("{}", note);
  require_supported(config);
  Trainer trainer(config, args.text("resume").value_or(config.value.training.resume_from_checkpoint), args.log());
  const int code = trainer.run();
  if (args.json()) args.log().result(dump_json(trainer.results()));
  return code;
}

}  // namespace qtrain
