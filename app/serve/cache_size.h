#pragma once
#include <cstdint>
#include <optional>

namespace qtrain::serve {

/// The requested size of the key/value cache.
struct CacheRequest {
  std::optional<std::int64_t> context = {};  ///< tokens of prompt and answer; none: `usual`, or as much as fits
  std::optional<std::int64_t> tokens = {};   ///< tokens of all answers together; none: depends on free memory
  std::int64_t usual = 4096;                 ///< default context
  std::int64_t sequences = 16;
};

/// The memory that the model leaves free, in bytes.
struct CacheMemory {
  double left = 0;
  double share = 0;  ///< the part of it that the cache takes by default
  std::size_t per_token = 0;
};

struct CacheSize {
  std::int64_t context = 0, tokens = 0;
};

/// Throws ErrorKind::memory if the request does not fit, ErrorKind::usage if the context is longer than the cache.
CacheSize cache_size(const CacheRequest& request, const CacheMemory& memory);

}  // namespace qtrain::serve
