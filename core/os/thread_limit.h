#pragma once
#include <system_error>

#include "core/error.h"

namespace qtrain {

/// The error of a process that may not start another thread: ErrorKind::usage, because the system limits their number.
/// Any other error of the system is internal.
Error thread_error(const std::system_error& error);

}  // namespace qtrain
