#pragma once

namespace qtrain {

/// Raises the limit of open files, which child processes inherit, as far as the system allows: hundreds of ranks need
/// more than the usual 1024.
void raise_open_files();

}  // namespace qtrain
