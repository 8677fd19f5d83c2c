#include "core/os/thread_limit.h"

#include <string>

namespace qtrain {

Error thread_error(const std::system_error& error) {
  if (error.code() != std::errc::resource_unavailable_try_again)
    return {ErrorKind::internal, {.cause = std::string("internal error: ") + error.what()}};
  return {
      ErrorKind::usage,
      {.cause = "no more threads can be started (" + error.code().message() + ")",
       .remedy = "raise the limit of processes and threads (ulimit -u, or that of the container), or start fewer of "
                 "them (nproc, threads)"}};
}

}  // namespace qtrain
