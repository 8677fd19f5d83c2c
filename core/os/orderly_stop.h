#pragma once
#include <functional>

namespace qtrain {

/// Runs work that has something to clean up within the life of a StopsAtOnce: a stop does not end the process until
/// the work checks for it, or is done. Throws ErrorKind::stopped if a stop was requested meanwhile.
void stop_in_order(const std::function<void()>& work);

}  // namespace qtrain
