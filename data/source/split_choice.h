#pragma once
#include <filesystem>
#include <string_view>
#include <vector>

#include "data/source/raw_rows.h"

namespace qtrain {

/// How the cause of an error begins if a part has several splits.
inline constexpr std::string_view kSeveralSplits = "several splits match";

/// Chooses those of `names` (files or splits of a DatasetDict, relative to a folder) that belong to the wanted part.
/// For training: train, or else names without a part. For evaluation: validation, or else test, or else names without a
/// part. A split with exactly that name wins over others of its part. For a split by name: exact matches or, if the
/// name is one of these parts, those of the part; `train` may also match names without a part. Throws ErrorKind::input
/// for the folder if nothing matches, or if several splits or subfolders do.
std::vector<std::filesystem::path> choose_split(const std::filesystem::path& folder,
                                                const std::vector<std::filesystem::path>& names,
                                                const WantedSplit& split);

}  // namespace qtrain
