#pragma once

namespace qtrain {

/// Sets some memory aside. It is given back when an allocation fails, so that what follows that failure has memory:
/// destructors that allocate (JSON values put their members on a list), and the message. Does nothing as long as there
/// is some; a process that goes on after such a failure calls it again.
void reserve_memory_for_errors();

}  // namespace qtrain
