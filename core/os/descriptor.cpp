#include "core/os/descriptor.h"

#include <fcntl.h>

namespace qtrain {

bool open_missing_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) return false;  // takes the lowest free number
  return true;
}

}  // namespace qtrain
