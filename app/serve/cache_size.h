#pragma once
#include <cstdint>
#include <optional>

namespace qtrain::serve {

/// What is asked of the key/value cache.
struct CacheRequest {
  std::optional<std::int64_t> context = {};  ///< tokens of prompt and answer; none: `usual`, or as much as fits
  std::optional<std::int64_t> tokens = {};   ///< of all answers; none: by memory
  std::int64_t usual = 4096;                 ///< context
  std::int64_t sequences = 16;
};

/// Bytes of the memory that the model leaves.
struct CacheMemory {
  double left = 0;
  double share = 0;  ///< what the cache takes of it where nothing more is asked for
  std::size_t per_token = 0;
};

struct CacheSize {
  std::int64_t context = 0, tokens = 0;
};

/// Errors: ErrorKind::memory where what is asked for does not fit, ErrorKind::usage for a context beyond the cache.
CacheSize cache_size(const CacheRequest& request, const CacheMemory& memory);

}  // namespace qtrain::serve
