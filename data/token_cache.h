#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

#include "core/hash.h"
#include "core/log.h"
#include "core/parallel.h"
#include "data/token_rows.h"

namespace qtrain {

/// A folder of prepared data sets shared by runs and processes, each in a file named by a hash of its inputs.
class TokenCache {
 public:
  struct Options {
    std::filesystem::path folder;
    std::uint64_t limit = 0;  ///< maximum bytes of the folder; least recently used files are removed first
  };
  /// How to build a missing data set, and what to call from time to time while another process builds it (may throw to
  /// stop).
  struct Recipe {
    Digest key;
    std::function<void(DatasetBuilder&)> build;
    std::function<void()> while_waiting;
  };

  /// Creates the folder. Throws ErrorKind::disk.
  explicit TokenCache(Options options);

  /// The memory-mapped data set for a key. If several processes need it, one builds it and the others wait. Rebuilds a
  /// damaged file with a warning.
  Dataset get(const Recipe& recipe, Log& log);

  /// Digest of a file's contents. Does not reread a file that is unchanged (path, size, times, inode).
  Digest digest_of_file(const std::filesystem::path& file, ThreadPool& pool);

 private:
  std::filesystem::path path_of(const Digest& key) const;
  void evict(const std::filesystem::path& keep, Log& log) const;

  Options options_;
};

/// Digest of a file's contents, read by all threads. Throws ErrorKind::input if it cannot be read.
Digest digest_contents(const std::filesystem::path& file, ThreadPool& pool);

}  // namespace qtrain
