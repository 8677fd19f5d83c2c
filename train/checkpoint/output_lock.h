#pragma once
#include <filesystem>

namespace qtrain {

/// The right to write to an output directory, held while it lives (flock on DIR/.lock). Makes the directory.
class OutputLock {
 public:
  /// A usage error if another run holds it, a disk error if the directory cannot be written to.
  explicit OutputLock(const std::filesystem::path& output);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  int file_;
};

/// Whether a run holds it.
bool is_locked(const std::filesystem::path& output);

/// Tries to write where a run's output is to go, and leaves nothing there. An error (ErrorKind::disk) says why not: a
/// file is in its place, no permission, a read-only file system.
void try_output(const std::filesystem::path& output);

}  // namespace qtrain
