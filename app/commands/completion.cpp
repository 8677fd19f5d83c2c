#include "app/cli/completion.h"
#include "app/commands/commands.h"

namespace qtrain {

/// `qtrain completion bash|zsh|fish`.
int run_completion(const Arguments& arguments) {
  arguments.log().result_stream(completion_script(arguments.operand(0)));
  return 0;
}

}  // namespace qtrain
