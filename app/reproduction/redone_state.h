#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "app/reproduction/relocation.h"

namespace qtrain {

/// A sealed folder, and what came of doing its steps again.
struct RedoneState {
  std::filesystem::path sealed, again;
  const Renames& renames;  ///< of files that were moved since
};

/// What came of a comparison of sealed files.
struct ComparedState {
  std::vector<std::string> differences;       ///< each beginning with the name of its file; empty: none
  std::map<std::string, std::string> sha256;  ///< of the bytes that were compared, by the name of their file
};

/// Holds sealed files against what came of doing their steps again. Files are compared byte by byte; documents that
/// hold times, speeds or paths without those, but they have to be written as this program writes them.
ComparedState compare(const RedoneState& state);

/// Where two documents differ first, "a.b: 1 was sealed, and 2 comes of the steps"; empty: nowhere.
std::string first_difference(const Json& sealed, const Json& again);

}  // namespace qtrain
