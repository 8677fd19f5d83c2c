#pragma once

namespace qtrain {

/// Sets some memory aside, once per process. It is given back when an allocation fails for the first time, so that what
/// follows that failure has memory: destructors that allocate (JSON values put their members on a list), and the
/// message.
void reserve_memory_for_errors();

}  // namespace qtrain
