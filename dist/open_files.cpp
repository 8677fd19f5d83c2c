#include "dist/open_files.h"

#include <sys/resource.h>

namespace qtrain {

void raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if this fails, the old limit stays
}

}  // namespace qtrain
