#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

#include "core/hash.h"
#include "core/log.h"
#include "core/parallel.h"
#include "data/token_rows.h"

namespace qtrain {

/// A folder of prepared data sets that runs and processes share, each in a file that is named by what it was made of.
class TokenCache {
 public:
  struct Options {
    std::filesystem::path folder;
    std::uint64_t limit = 0;  ///< bytes of the whole folder; files that were used least recently go first
  };
  /// How a data set that is not there is made, and what to do now and then while another process makes it (it may
  /// throw to stop).
  struct Recipe {
    Digest key;
    std::function<void(DatasetBuilder&)> build;
    std::function<void()> while_waiting;
  };

  /// Makes the folder. Errors: ErrorKind::disk.
  explicit TokenCache(Options options);

  /// The data set of a key, mapped. Of several processes that want it one makes it and the others wait. A damaged file
  /// is made again, with a warning.
  Dataset get(const Recipe& recipe, Log& log);

  /// The digest of a file's contents. A file that has not changed since it was read (path, size, times, inode) is not
  /// read again.
  Digest digest_of_file(const std::filesystem::path& file, ThreadPool& pool);

 private:
  std::filesystem::path path_of(const Digest& key) const;
  void evict(const std::filesystem::path& keep, Log& log) const;

  Options options_;
};

/// The digest of a file's contents, read by all threads. Errors (ErrorKind::input): the file cannot be read.
Digest digest_contents(const std::filesystem::path& file, ThreadPool& pool);

}  // namespace qtrain
