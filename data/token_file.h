#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "core/hash.h"
#include "data/token_rows.h"

namespace qtrain {

/// A data set in a file to be memory-mapped: tokens, then the index (offsets, borders, counts, statistics), then a
/// footer with sizes and checksums. Numbers are little-endian.

/// Writes the rows that `build` adds to the builder. The file appears atomically under its final name. `key` identifies
/// the inputs of the rows. Throws ErrorKind::disk, and whatever `build` throws.
void write_token_file(const std::filesystem::path& file, const Digest& key,
                      const std::function<void(DatasetBuilder&)>& build);

/// Maps the rows of a file; none if it does not exist. Throws ErrorKind::input if the file is damaged, of another
/// version, or of another key. Token data over 256 MB is not verified; make_batch rejects invalid ids.
std::optional<Dataset> open_token_file(const std::filesystem::path& file, const Digest& key);

}  // namespace qtrain
