#pragma once
#include <string>
#include <string_view>

namespace qtrain {

/// Whether the bytes begin as a gzip or a Zstandard file does.
bool is_compressed(std::string_view bytes);

/// The contents of a gzip or Zstandard file, also of several concatenated members or frames. `name` begins
/// messages. Errors (ErrorKind::input): damaged or cut short, more than 64 GiB.
std::string inflate_bytes(std::string_view bytes, const std::string& name);

}  // namespace qtrain
