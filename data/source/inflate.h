#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace qtrain {

/// Whether the bytes start like a gzip or Zstandard file.
bool is_compressed(std::string_view bytes);

/// Passes on the contents of a gzip or Zstandard file in pieces of at most 1 MiB, including concatenated members or
/// frames. `name` is used in messages. Throws ErrorKind::input if the file is damaged, truncated, or beyond the
/// GrowthLimit or 64 GiB; ErrorKind::stopped when a stop is requested.
struct InflateRequest {
  std::string_view bytes;
  const std::string& name;
};
void inflate_bytes(const InflateRequest& request, const std::function<void(std::string_view piece)>& take);

}  // namespace qtrain
