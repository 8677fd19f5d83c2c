#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace qtrain {

/// Which part of a data set is wanted: decides which files of a folder are taken when their names say `train`,
/// `validation` (also valid, val, dev, eval) or `test`.
enum class Split : std::uint8_t { train, evaluation };

/// A part of a data set by its use, or by the name of its split where one is given: "train_sft".
struct WantedSplit {
  WantedSplit(Split used_as, std::string named = {}) : part(used_as), name(std::move(named)) {}  // NOLINT: implicit
  Split part;
  std::string name;
};

/// The data files that a list of files, globs (*, ?, [a-z], ** for folders) and folders stands for, in the order of the
/// list, each pattern's matches sorted by name, none twice. A folder that `datasets` saved stands for its data (of a
/// DatasetDict one part); another one for its .json, .jsonl, .ndjson, .csv, .tsv (also .gz, .zst), .parquet or .arrow
/// files, of these formats the most frequent one, and if it has none for those of the folders below it. Files and globs
/// are taken whatever the split. Errors (ErrorKind::input): an entry that matches nothing, formats that are recognized
/// but not read here, a folder without the split.
std::vector<std::filesystem::path> resolve_data_files(const std::vector<std::string>& entries,
                                                      const WantedSplit& split);

/// Whether a file is named as data files are.
bool is_data_file(const std::filesystem::path& file);
/// Whether Dataset.save_to_disk wrote the folder.
bool is_saved_folder(const std::filesystem::path& folder);

}  // namespace qtrain
