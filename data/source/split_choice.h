#pragma once
#include <filesystem>
#include <vector>

#include "data/source/reader.h"

namespace qtrain {

/// Of names relative to a folder (files, or the splits of a DatasetDict) those of the wanted part: train, else the
/// ones that name no part; validation, else test, else these. A split named exactly so goes before others of its part.
/// Of a split by name those that are named so or, where it is one of these parts, those of the part; `train` may also
/// name no part. Errors (ErrorKind::input, at the folder): no such name; several splits, or sub-folders that each have
/// one.
std::vector<std::filesystem::path> choose_split(const std::filesystem::path& folder,
                                                const std::vector<std::filesystem::path>& names,
                                                const WantedSplit& split);

}  // namespace qtrain
