#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace qtrain {

/// The wanted part of a data set. Selects the files of a folder whose names contain `train`, `validation` (or valid,
/// val, dev, eval) or `test`.
enum class Split : std::uint8_t { train, evaluation };

/// A split of a data set, and the paths and globs of its files in the folder of the data set.
struct CardSplit {
  std::string name;
  std::vector<std::string> files;
};
using CardSplits = std::vector<CardSplit>;

/// What a card says about the files of a folder.
struct CardFiles {
  CardSplits splits;
  bool only = false;  ///< no others belong to the config; else those of the folder are read if these are not there
};

/// A part of a data set by its use, or by the name of its split ("train_sft") if given.
struct WantedSplit {
  WantedSplit(Split used_as, std::string named = {}) : part(used_as), name(std::move(named)) {}  // NOLINT: implicit
  Split part;
  std::string name;
  std::map<std::string, CardFiles> cards = {};  ///< the splits of folders that have a card; others are found by name
};

/// Resolves a list of files, globs (*, ?, [a-z], ** for folders) and folders to data files, in list order, the matches
/// of each pattern sorted by name, without duplicates. A folder saved by `datasets` stands for its data (one part of a
/// DatasetDict); any other folder for its .json, .jsonl, .ndjson, .csv, .tsv (also .gz, .zst), .parquet or .arrow
/// files, of the most frequent format, or if it has none, for those of its subfolders. Files and globs are used for any
/// split. Throws ErrorKind::input for an entry without matches, unsupported formats, and a folder without the split.
std::vector<std::filesystem::path> resolve_data_files(const std::vector<std::string>& entries,
                                                      const WantedSplit& split);

/// Whether a file has the name of a data file.
bool is_data_file(const std::filesystem::path& file);
/// Whether the folder was written by Dataset.save_to_disk.
bool is_saved_folder(const std::filesystem::path& folder);

}  // namespace qtrain
