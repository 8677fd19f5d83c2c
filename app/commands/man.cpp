#include "app/cli/man_page.h"
#include "app/commands/commands.h"

namespace qtrain {

/// `qtrain man`.
int run_man(const Arguments& arguments) {
  arguments.log().result_stream(man_page());
  return 0;
}

}  // namespace qtrain
