#pragma once
#include <filesystem>

namespace qtrain {

/// Exclusive write access to an output directory for its lifetime (flock on DIR/.lock). Creates the directory.
class OutputLock {
 public:
  /// Throws ErrorKind::usage if another run holds the lock, ErrorKind::disk if the directory is not writable.
  explicit OutputLock(const std::filesystem::path& output);
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  int file_;
};

/// Whether a run holds the lock.
bool is_locked(const std::filesystem::path& output);

/// Checks that a run could write to `output`, leaving nothing behind. Throws ErrorKind::disk with the reason: a file of
/// that name, no permission, a read-only file system.
void try_output(const std::filesystem::path& output);

}  // namespace qtrain
