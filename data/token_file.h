#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "core/hash.h"
#include "data/token_rows.h"

namespace qtrain {

/// A data set in a file, to be mapped: tokens, then the index (offsets, borders, counts, statistics), then a footer
/// with sizes and checksums. Numbers are little endian.

/// Writes the rows that `build` hands to the builder, through a temporary name: the file is whole or not there. `key`
/// says what the rows were made of. Errors: ErrorKind::disk, and those of `build`.
void write_token_file(const std::filesystem::path& file, const Digest& key,
                      const std::function<void(DatasetBuilder&)>& build);

/// The rows of a file, mapped; none where there is no file.
/// Errors (ErrorKind::input): the file is damaged, of another version, or of another key. More than 256 MB of tokens
/// are not read; make_batch refuses ids that no row had.
std::optional<Dataset> open_token_file(const std::filesystem::path& file, const Digest& key);

}  // namespace qtrain
