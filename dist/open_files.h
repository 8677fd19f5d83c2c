#pragma once

namespace qtrain {

/// Lets this process, and those that it starts, have as many open files as the system allows it: hundreds of ranks need
/// more than the usual 1024.
void raise_open_files();

}  // namespace qtrain
