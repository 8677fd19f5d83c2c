#pragma once

namespace qtrain {

/// SIGINT, SIGTERM and SIGUSR1 from now on ask to stop: the first is remembered, the second ends the process at once
/// with exit code 130. SIGPIPE and SIGXFSZ are ignored, so that a failed write is an error and not a death.
void install_stop_handlers();

/// Whether a stop was asked for. Read it between steps, rows and files.
bool stop_requested();

/// Throws ErrorKind::stopped when a stop was asked for: for work that leaves nothing behind.
void throw_if_stopped();

/// For tests: as if a signal had come, or had not.
void set_stop_requested(bool asked);

}  // namespace qtrain
