#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace qtrain {

/// Whether the bytes begin as a gzip or a Zstandard file does.
bool is_compressed(std::string_view bytes);

/// Hands over the contents of a gzip or Zstandard file in pieces of at most a MiB, also those of several concatenated
/// members or frames. `name` begins messages. Errors: damaged, cut short, beyond the GrowthLimit or 64 GiB
/// (ErrorKind::input); ErrorKind::stopped when a stop is asked for.
struct InflateRequest {
  std::string_view bytes;
  const std::string& name;
};
void inflate_bytes(const InflateRequest& request, const std::function<void(std::string_view piece)>& take);

}  // namespace qtrain
